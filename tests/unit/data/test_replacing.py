"""Files that are there whole or not at all."""

from pathlib import Path

import pytest

from skyrl_nat.data.replacing import replacing


def test_file_takes_the_place_at_the_end_and_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.txt"
    with replacing(path) as part:
        part.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert [entry.name for entry in path.parent.iterdir()] == ["rows.txt"]


def test_folder_of_files_takes_the_place_as_one(tmp_path: Path) -> None:
    with replacing(tmp_path / "shards") as part:
        part.mkdir()
        (part / "0.txt").write_text("zero")
    assert (tmp_path / "shards" / "0.txt").read_text() == "zero"


@pytest.mark.parametrize("is_folder", [False, True])
def test_what_raised_leaves_the_old_file_and_nothing_else(tmp_path: Path, is_folder: bool) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as part:
        if is_folder:
            part.mkdir()
        (part / "x" if is_folder else part).write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.txt"]

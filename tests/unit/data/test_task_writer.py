"""Files appear whole or not at all, with one schema and row groups of a bounded size."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from skyrl_nat.data import task_writer
from skyrl_nat.data.specs import SCHEMA, load_tasks, write_shards, write_tasks
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task


def task(name: str, **changes: Any) -> Task:
    return Task(**{"task_id": name, "family": "f", "payload": {}, **changes})


def test_odd_text_is_kept_and_lone_surrogates_are_replaced_and_counted_ds_10(tmp_path: Path) -> None:
    odd = ["\ud800x\udfff", "nul \x00", "\u202eright to left\u200f", "\U0001f600", "e\u0301"]
    tasks = [task(f"{i} {text}", payload={text: [text]}, hidden={"h": text}) for i, text in enumerate(odd)]
    written = write_tasks(tasks, tmp_path / "x.parquet")
    assert (written.num_tasks, written.num_replaced) == (5, 8)
    loaded = load_tasks([str(tmp_path / "x.parquet")])
    assert loaded[0] == task(
        "0 \ufffdx\ufffd", payload={"\ufffdx\ufffd": ["\ufffdx\ufffd"]}, hidden={"h": "\ufffdx\ufffd"}
    )
    assert loaded[1:] == tasks[1:]


def test_two_surrogates_that_make_a_pair_are_their_character_ds_10(tmp_path: Path) -> None:
    written = write_tasks([task("a\ud83d\ude00", payload={"k": "\ud83d\ude00"})], tmp_path / "x.parquet")
    assert written.num_replaced == 0
    assert load_tasks([str(tmp_path / "x.parquet")]) == [task("a\U0001f600", payload={"k": "\U0001f600"})]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"payload": None}, "column payload must be a JSON object, got NoneType"),
        ({"family": None}, "column family must not be empty"),
        ({"task_id": None}, "column task_id must not be empty"),
        ({"task_id": "7.0"}, "column task_id must be an id that never was a float"),
        ({"difficulty": None}, "column difficulty must not be empty"),
        ({"difficulty": 6}, "column difficulty must be in 1..5, got 6"),
        ({"payload": {1: 2}}, "column payload must be JSON: keys must be text, got 1"),
        (
            {"payload": dict.fromkeys(["\ud800", "\udfff"], 1)},
            "column payload must be JSON: two keys differ in lone surrogates only",
        ),
        ({"hidden": {"h": float("inf")}}, "column hidden.h must be JSON: Out of range float"),
    ],
)
def test_row_that_would_not_be_read_is_refused_before_writing_ds_11(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DataError, match=f"1 bad rows:\n  row 1, {problem}"):
        write_tasks([task("a"), task("b", **changes), task("c")], tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_all_bad_rows_are_counted_and_the_file_that_was_there_stays(tmp_path: Path) -> None:
    write_tasks([task("old")], tmp_path / "x.parquet")
    for names in (None, []):
        tasks = [task(f"t{i}", difficulty=i % 3) for i in range(21)]
        with pytest.raises(DataError, match=r"7 bad rows, the first 5 of them:\n  row 0, .*\n.*\n.*\n.*\n  row 12, "):
            write_tasks(tasks, tmp_path / "x.parquet", hidden_names=names)
    assert load_tasks([str(tmp_path / "x.parquet")]) == [task("old")]
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


def test_row_groups_end_at_the_number_of_rows_or_of_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes(tasks: list[Task]) -> list[int]:
        write_tasks(tasks, tmp_path / "x.parquet")
        metadata = pq.ParquetFile(tmp_path / "x.parquet").metadata
        return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]

    assert sizes([task(f"t{i}") for i in range(2500)]) == [1024, 1024, 452]
    monkeypatch.setattr(task_writer, "GROUP_CHARS", 1000)
    assert sizes([task(f"t{i}", payload={"k": "x" * 300}) for i in range(10)]) == [4, 4, 2]


def test_shards_have_one_schema_whatever_their_rows_have_ds_04(tmp_path: Path) -> None:
    tasks = [task("a"), task("b", hidden={"tags": []}), task("c", hidden={"more": ["x"]})]
    written = write_shards(tasks, tmp_path / "set", rows_per_file=1)
    assert [path.name for path in written.files] == [f"part-0000{i}.parquet" for i in range(3)]
    names = [pq.ParquetFile(path).schema_arrow.names for path in written.files]
    assert names == [[*SCHEMA.names, "hidden.tags", "hidden.more"]] * 3
    assert load_tasks([str(tmp_path / "set")]) == tasks


def test_same_tasks_give_the_same_bytes_streamed_or_held(tmp_path: Path) -> None:
    tasks = [task(f"t{i}", hidden={"h": [i]}) for i in range(2000)]
    write_tasks(tasks, tmp_path / "held")
    write_tasks(iter(tasks), tmp_path / "streamed", hidden_names=["h"])
    for name in ("one", "two"):
        write_shards(tasks, tmp_path / name, rows_per_file=700)
    assert (tmp_path / "held").read_bytes() == (tmp_path / "streamed").read_bytes()
    contents = [[path.read_bytes() for path in sorted((tmp_path / name).iterdir())] for name in ("one", "two")]
    assert contents[0] == contents[1]
    assert len(contents[0]) == 3


def test_hidden_name_that_was_not_announced_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"row 0, column hidden\.b must be one of a hidden names"):
        write_tasks([task("t", hidden={"b": 1})], tmp_path / "x.parquet", hidden_names=["a"])


def test_shards_never_mix_with_what_is_there_and_none_stay_of_a_refused_set(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    write_shards([task("a")], tmp_path / "set")
    with pytest.raises(DataError, match="must be a new or an empty folder"):
        write_shards([task("b")], tmp_path / "set")
    with pytest.raises(DataError, match="row 3"):
        write_shards([task("a"), task("b"), task("c"), task("")], tmp_path / "bad", rows_per_file=1, hidden_names=[])
    with pytest.raises(DataError, match="at least one task, got 0"):
        write_shards([], tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["set"]

"""Names become files; what is wrong with any of them is said at once."""

import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skyrl_nat.data.specs import load_tasks, write_shards, write_tasks
from skyrl_nat.data.task_schema import SCHEMA, VERSION_KEY
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

ROW = {"task_id": "a", "family": "f", "difficulty": 1, "payload": "{}"}


def task(name: str) -> Task:
    return Task(task_id=name, family="f", payload={})


def write_rows(path: Path, rows: list[dict[str, Any]], version: str | None = None) -> str:
    metadata = None if version is None else {VERSION_KEY: version}
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(metadata), path)
    return str(path)


def names(files: list[str]) -> list[str]:
    return [item.task_id for item in load_tasks(files)]


def test_folder_and_pattern_give_their_shards_in_the_order_of_names(tmp_path: Path) -> None:
    write_shards([task(f"t{i}") for i in range(5)], tmp_path / "set.parquet", rows_per_file=2)
    (tmp_path / "set.parquet" / "_SUCCESS").touch()
    (tmp_path / "set.parquet" / ".part-9.parquet.77.part").write_bytes(b"unfinished")
    (tmp_path / "set.parquet" / ".hidden.parquet").write_bytes(b"unfinished")
    assert names([str(tmp_path / "set.parquet")]) == ["t0", "t1", "t2", "t3", "t4"]
    assert names([str(tmp_path / "set.parquet" / "part-0000[12]*")]) == ["t2", "t3", "t4"]
    assert names([str(tmp_path / "**" / "*1.parquet")]) == ["t2", "t3"]


def test_file_whose_name_looks_like_a_pattern_is_read(tmp_path: Path) -> None:
    write_tasks([task("a")], tmp_path / "x[1].parquet")
    assert names([str(tmp_path / "x[1].parquet")]) == ["a"]


def test_bad_files_and_bad_rows_of_all_names_are_in_one_message_ds_07(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    write_shards([task("a"), task("b")], shards, rows_per_file=1)
    content = (shards / "part-00001.parquet").read_bytes()
    (shards / "part-00001.parquet").write_bytes(content[: len(content) // 2])
    (shards / "part-00002.parquet").mkdir()
    rows = write_rows(tmp_path / "rows.parquet", [{**ROW, "task_id": f"r{i}", "difficulty": 6 + i} for i in range(7)])
    with pytest.raises(DataError) as caught:
        load_tasks([str(shards), rows, str(tmp_path / "none*.parquet")])
    message = str(caught.value)
    assert "4 of 5 files" in message
    assert f"{shards / 'part-00001.parquet'}: is cut off" in message
    assert f"({len(content) // 2} bytes)" in message
    assert f"{shards / 'part-00002.parquet'}: is a folder inside" in message
    assert "none*.parquet: no file fits this pattern" in message
    assert f"{rows}: 7 bad rows, the first 5 of them:" in message
    assert re.findall(r"row (\d), column difficulty must be in 1..5, got (\d+)", message) == [
        (str(i), str(6 + i)) for i in range(5)
    ]


def test_file_with_a_broken_page_is_named_with_the_row_ds_07(tmp_path: Path) -> None:
    write_tasks([task(f"t{i}") for i in range(3000)], tmp_path / "x.parquet", hidden_names=[])
    content = bytearray((tmp_path / "x.parquet").read_bytes())
    start = pq.ParquetFile(tmp_path / "x.parquet").metadata.row_group(2).column(0).data_page_offset
    content[start : start + 40] = b"\xff" * 40
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.parquet: rows from \d+ on cannot be read") as caught:
        load_tasks([str(tmp_path / "x.parquet")])
    assert "rows from 2048 on" in str(caught.value)


@pytest.mark.parametrize(("version", "shown"), [("2", "got 2"), ("0", "got 0"), ("new", "got new"), ("", "got ")])
def test_newer_or_unknown_version_is_refused(tmp_path: Path, version: str, shown: str) -> None:
    file = write_rows(tmp_path / "x.parquet", [ROW], version)
    with pytest.raises(DataError, match=rf"{VERSION_KEY} in its metadata must be 1 to 1, {shown}.*Update skyrl-nat"):
        load_tasks([file])


@pytest.mark.parametrize("version", ["1", None])
def test_version_1_is_read_and_a_file_without_version_is_taken_as_1(tmp_path: Path, version: str | None) -> None:
    assert names([write_rows(tmp_path / "x.parquet", [ROW], version)]) == ["a"]


def test_written_files_say_their_version(tmp_path: Path) -> None:
    write_tasks([task("a")], tmp_path / "x.parquet")
    schema = pq.ParquetFile(tmp_path / "x.parquet").schema_arrow
    assert schema.metadata == {b"skyrl_nat.schema_version": b"1"}
    assert [field.nullable for field in schema] == [False] * len(SCHEMA)


def test_column_that_comes_twice_is_refused(tmp_path: Path) -> None:
    columns = [pa.array(["a"]), pa.array(["f"]), pa.array([1]), pa.array(["{}"]), pa.array(["b"])]
    table = pa.Table.from_arrays(columns, names=["task_id", "family", "difficulty", "payload", "task_id"])
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x\.parquet: column task_id comes twice"):
        load_tasks([str(tmp_path / "x.parquet")])


def test_columns_of_no_task_are_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write_rows(tmp_path / "x.parquet", [{**ROW, "source": "web", "hidden": "{}"}])
    with caplog.at_level("INFO"):
        assert load_tasks([file]) == [task("a")]
    assert "columns that are no part of a task are not read: hidden, source" in caplog.text


def test_damage_anywhere_is_refused_or_changes_nothing_ds_07(tmp_path: Path) -> None:
    tasks = [Task(task_id=f"t{i}", family="f", payload={"text": "\u00e9" * i}, hidden={"h": [i]}) for i in range(50)]
    write_tasks(tasks, tmp_path / "x.parquet")
    content = (tmp_path / "x.parquet").read_bytes()
    drawer = random.Random(1)
    num_refused = 0
    for _ in range(300):
        damaged = bytearray(content)
        damaged[drawer.randrange(len(content))] ^= 1 << drawer.randrange(8)
        (tmp_path / "y.parquet").write_bytes(damaged)
        try:
            loaded = load_tasks([str(tmp_path / "y.parquet")])
        except DataError:
            num_refused += 1
        else:
            assert [item.task_id for item in loaded] == [item.task_id for item in tasks]
            assert [item.payload for item in loaded] == [item.payload for item in tasks]
    assert num_refused > 200

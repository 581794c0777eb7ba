import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skyrl_nat.data.specs import SCHEMA, load_tasks, resolve_file, write_tasks
from skyrl_nat.environments.nat_agent.payload import parse_hidden, parse_spec
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task


def task(name: str, **changes: Any) -> Task:
    fields: dict[str, Any] = {
        "task_id": name,
        "family": "f",
        "payload": {"k": 1},
        "hidden": {},
        "difficulty": 1,
    }
    return Task(**{**fields, **changes})


def plain(value: Any) -> bool:
    if isinstance(value, dict):
        return type(value) is dict and all(type(key) is str and plain(item) for key, item in value.items())
    if isinstance(value, list):
        return type(value) is list and all(plain(item) for item in value)
    return value is None or type(value) in (bool, int, float, str)


def test_round_trip_keeps_different_keys_and_plain_types_ds_01_ds_02(tmp_path: Path) -> None:
    tasks = [
        task(
            "a",
            payload={"calls": [{"a": 1}], "big": 9007199254740993},
            hidden={"x": [1.5, None, True]},
        ),
        task("b", payload={"calls": [{"b": 2}], "text": "\u202e \U0001f600 e\u0301"}, difficulty=3),
    ]
    write_tasks(tasks, tmp_path / "x.parquet")
    loaded = load_tasks([str(tmp_path / "x.parquet")])
    assert loaded == tasks
    assert all(plain(item.payload) and plain(item.hidden) and type(item.difficulty) is int for item in loaded)


def test_same_tasks_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("x", "y"):
        write_tasks([task("a"), task("b")], tmp_path / name)
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


def test_all_bad_files_are_named_at_once_ds_07(tmp_path: Path) -> None:
    write_tasks([task("a")], tmp_path / "good.parquet")
    content = (tmp_path / "good.parquet").read_bytes()
    (tmp_path / "half.parquet").write_bytes(content[: len(content) // 2])
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "text.parquet").write_text("task_id,family\n")
    (tmp_path / "folder.parquet").mkdir()
    names = [f"{name}.parquet" for name in ("good", "half", "empty", "text", "folder", "missing")]
    with pytest.raises(DataError) as caught:
        load_tasks([str(tmp_path / name) for name in names])
    message = str(caught.value)
    assert "5 of 6" in message
    assert all(name in message for name in names[1:])
    assert "good.parquet" not in message
    assert "0 bytes" in message
    assert "no such file" in message


def test_empty_files_and_filtered_away_tasks_are_refused_with_counts_ds_08(tmp_path: Path) -> None:
    write_tasks([], tmp_path / "none.parquet")
    with pytest.raises(DataError, match="got 0 rows"):
        load_tasks([str(tmp_path / "none.parquet")])
    write_tasks([task("a", difficulty=4), task("b", difficulty=5)], tmp_path / "hard.parquet")
    with pytest.raises(DataError, match=r"got 2 rows.*max_difficulty \(3\)"):
        load_tasks([str(tmp_path / "hard.parquet")], max_difficulty=3)
    assert [t.task_id for t in load_tasks([str(tmp_path / "hard.parquet")], max_difficulty=4)] == ["a"]


def test_duplicate_ids_are_refused_within_and_across_files(tmp_path: Path) -> None:
    write_tasks([task("a"), task("b")], tmp_path / "x.parquet")
    write_tasks([task("b")], tmp_path / "y.parquet")
    with pytest.raises(DataError, match="b"):
        load_tasks([str(tmp_path / "x.parquet"), str(tmp_path / "y.parquet")])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"payload": None}, "payload must not be empty"),
        ({"payload": "{"}, "payload must be JSON"),
        ({"hidden": "[1]"}, "hidden must be a JSON object"),
        ({"task_id": ""}, "task_id must not be empty"),
        ({"difficulty": 9}, "difficulty must be in 1..5"),
        ({"family": "other"}, "family must be f"),
    ],
)
def test_bad_rows_are_refused_with_file_and_row_ds_11(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good = {"task_id": "a", "family": "f", "difficulty": 1, "payload": "{}", "hidden": "{}"}
    loose = pa.schema([pa.field(field.name, field.type) for field in SCHEMA])
    pq.write_table(
        pa.Table.from_pylist([good, {**good, "task_id": "b", **change}], schema=loose),
        tmp_path / "x.parquet",
    )
    with pytest.raises(DataError, match=message) as caught:
        load_tasks([str(tmp_path / "x.parquet")], family="f")
    assert "row 1" in str(caught.value)


def test_wrong_columns_are_refused_ds_05(tmp_path: Path) -> None:
    pq.write_table(pa.table({"task_id": ["a"]}), tmp_path / "few.parquet")
    with pytest.raises(DataError, match="has no column family"):
        load_tasks([str(tmp_path / "few.parquet")])
    columns = {
        "task_id": [7.5],
        "family": ["f"],
        "difficulty": [1],
        "payload": ["{}"],
        "hidden": ["{}"],
    }
    pq.write_table(pa.table(columns), tmp_path / "float.parquet")
    with pytest.raises(DataError, match="column task_id must be string, got double"):
        load_tasks([str(tmp_path / "float.parquet")])


def test_writer_refuses_what_is_no_json_with_the_row(tmp_path: Path) -> None:
    for bad in (task("b", payload={"x": float("nan")}), task("b", payload={"x": {1}}), task("")):
        with pytest.raises(DataError, match="row 1"):
            write_tasks([task("a"), bad], tmp_path / "x.parquet")


def test_shipped_tasks_are_whole_and_splits_share_no_tool() -> None:
    splits = {
        split: load_tasks([f"builtin:nat_agent/{split}"], family="nat_agent") for split in ("train", "validation")
    }
    assert [len(tasks) for tasks in splits.values()] == [40, 8]
    names = {}
    for split, tasks in splits.items():
        names[split] = set()
        for item in tasks:
            names[split] |= {tool.name for tool in parse_spec(item.payload).functions}
            hidden = parse_hidden(item.hidden)
            examples = [json.dumps(e["input"]) for tool in item.payload["tools"] for e in tool["examples"]]
            single = len(item.payload["tools"]) == 1
            assert not single or not {json.dumps(v.input) for v in hidden.vectors} & set(examples)
        assert {item.difficulty for item in tasks} == {1, 2, 3}
    assert not names["train"] & names["validation"]


def test_builtin_names_are_files_of_the_package() -> None:
    assert resolve_file("builtin:nat_agent/train").is_file()
    with pytest.raises(DataError, match="no such file"):
        load_tasks(["builtin:nat_agent/no_such_split"])

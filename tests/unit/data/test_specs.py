import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skyrl_nat.data.specs import HIDDEN_PREFIX, SCHEMA, load_tasks, resolve_file, write_tasks
from skyrl_nat.environments.nat_agent.payload import parse_hidden, parse_spec
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

SPLITS = ("train", "validation")


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
    for reason in ("is cut off", "0 bytes", r"it begins with b'task_id,fam", "folder without .parquet", "no such file"):
        assert reason in message


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
        ({"payload": "[1]"}, "payload must be a JSON object, got list"),
        ({"hidden.vectors": "[1,"}, r"hidden\.vectors must be JSON text"),
        ({"hidden.e2e": ""}, r"hidden\.e2e must be JSON text"),
        ({"task_id": ""}, "task_id must not be empty"),
        ({"difficulty": 9}, "difficulty must be in 1..5"),
        ({"family": "other"}, "family must be f"),
    ],
)
def test_bad_rows_are_refused_with_file_and_row_ds_11(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good = {
        "task_id": "a",
        "family": "f",
        "difficulty": 1,
        "payload": "{}",
        "hidden.vectors": "[1]",
        "hidden.e2e": "[]",
    }
    names = [name for name in good if name.startswith(HIDDEN_PREFIX)]
    loose = pa.schema([pa.field(f.name, f.type) for f in (*SCHEMA, *(pa.field(name, pa.string()) for name in names))])
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
    }
    pq.write_table(pa.table(columns), tmp_path / "float.parquet")
    with pytest.raises(DataError, match=r"column task_id must be string or integer .*, got double"):
        load_tasks([str(tmp_path / "float.parquet")])


def test_writer_refuses_what_is_no_json_with_the_row(tmp_path: Path) -> None:
    for bad in (task("b", payload={"x": float("nan")}), task("b", payload={"x": {1}}), task("")):
        with pytest.raises(DataError, match="row 1"):
            write_tasks([task("a"), bad], tmp_path / "x.parquet")


def test_hidden_columns_come_back_as_they_were_and_only_where_they_were(tmp_path: Path) -> None:
    tasks = [
        task("a", hidden={"vectors": [{"input": {"k": None}}], "solution": {"f.py": "x = 1\n"}}),
        task("b", hidden={"errors": []}),
        task("c"),
    ]
    write_tasks(tasks, tmp_path / "x.parquet")
    assert load_tasks([str(tmp_path / "x.parquet")]) == tasks
    names = pq.ParquetFile(tmp_path / "x.parquet").schema_arrow.names
    assert names == [*SCHEMA.names, "hidden.vectors", "hidden.solution", "hidden.errors"]


def test_file_can_be_read_without_its_hidden_half(tmp_path: Path) -> None:
    write_tasks([task("a", hidden={"vectors": [1]})], tmp_path / "x.parquet")
    table = pq.ParquetFile(tmp_path / "x.parquet").read(columns=SCHEMA.names)
    pq.write_table(table, tmp_path / "visible.parquet")
    [loaded] = load_tasks([str(tmp_path / "visible.parquet")])
    assert loaded == task("a")
    assert loaded.hidden == {}


def test_column_of_an_older_format_is_no_hidden_half(tmp_path: Path) -> None:
    row = {"task_id": "a", "family": "f", "difficulty": 1, "payload": "{}", "hidden": '{"vectors": [1]}'}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "old.parquet")
    assert load_tasks([str(tmp_path / "old.parquet")])[0].hidden == {}


def test_shipped_tasks_are_whole_and_splits_share_no_tool() -> None:
    splits = {split: load_tasks([f"builtin:nat_agent/{split}"], family="nat_agent") for split in SPLITS}
    assert [len(tasks) for tasks in splits.values()] == [47, 10]
    names: dict[str, set[str]] = {}
    for split, tasks in splits.items():
        names[split] = {tool.name for item in tasks for tool in parse_spec(item.payload).functions}
        for item in tasks:
            spec, hidden = parse_spec(item.payload), parse_hidden(item.hidden)
            for tool in spec.functions:
                shown = [json.dumps(example.input) for example in tool.examples]
                asked = [json.dumps(vector.input) for vector in hidden.vectors if vector.tool == tool.name]
                assert asked
                assert not set(shown) & set(asked) or tool.name not in {name.name for name in spec.tools}
            assert set(hidden.reference) == {tool.name for tool in spec.functions}
            assert hidden.solution
    assert not names["train"] & names["validation"]


def test_shipped_difficulties_go_from_one_tool_to_whole_agents() -> None:
    levels = {split: {t.difficulty for t in load_tasks([f"builtin:nat_agent/{split}"])} for split in SPLITS}
    assert levels == {"train": {1, 2, 3, 4, 5}, "validation": {1, 2, 3, 4}}
    for split in SPLITS:
        for item in load_tasks([f"builtin:nat_agent/{split}"]):
            assert parse_spec(item.payload).is_full == (item.difficulty >= 4), item.task_id


@pytest.mark.parametrize("split", SPLITS)
def test_shipped_files_have_hidden_columns_and_no_hidden_text_is_visible(split: str) -> None:
    columns = pq.ParquetFile(resolve_file(f"builtin:nat_agent/{split}")).schema_arrow.names
    hidden = {
        f"hidden.{name}" for name in ("reference", "generators", "vectors", "errors", "mutants", "e2e", "solution")
    }
    assert hidden <= set(columns)
    assert "hidden" not in columns
    for item in load_tasks([f"builtin:nat_agent/{split}"]):
        visible = json.dumps(item.payload)
        assert item.visible().hidden == {}
        for secret in ("async def", "vectors", "reference", "canar", "mutant", "generator", "solution", "script"):
            assert f'"{secret}' not in visible
        for source in [entry["source"] for entry in (*item.hidden["reference"].values(), *item.hidden["mutants"])]:
            body = source.split("\n", 1)[1].strip()
            assert len(body) < 12 or json.dumps(body).strip('"') not in visible, item.task_id


def test_builtin_names_are_files_of_the_package() -> None:
    assert resolve_file("builtin:nat_agent/train").is_file()
    with pytest.raises(DataError, match="no such file"):
        load_tasks(["builtin:nat_agent/no_such_split"])

"""Columns as other writers make them: numbers, nulls, structs and drift between shards."""

import itertools
import json
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skyrl_nat.data.specs import load_tasks
from skyrl_nat.data.task_faults import RowFaults
from skyrl_nat.data.task_reader import RowParser
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

TEXT = pa.string()


def table(count: int = 1, **columns: Any) -> pa.Table:
    fields: dict[str, Any] = {
        "task_id": [f"t{i}" for i in range(count)],
        "family": ["f"] * count,
        "difficulty": [1] * count,
        "payload": ["{}"] * count,
    }
    return pa.table(fields | {name.replace("__", "."): values for name, values in columns.items()})


def read(folder: Path, *tables: pa.Table) -> list[Task]:
    files = [folder / f"{number}.parquet" for number in range(len(tables))]
    for file, content in zip(files, tables, strict=True):
        pq.write_table(content, file)
    return load_tasks([str(file) for file in files])


def ids(tasks: list[Task]) -> list[str]:
    return [item.task_id for item in tasks]


@pytest.mark.parametrize("kind", ["int64", "uint64", "dictionary"])
def test_integer_ids_keep_all_digits_ds_05(tmp_path: Path, kind: str) -> None:
    exact = [1, 9007199254740992, 9007199254740993, 2**63 - 1]
    stored = pa.array(exact, pa.int64())
    stored = stored.dictionary_encode() if kind == "dictionary" else stored.cast(kind)
    tasks = read(tmp_path, table(4, task_id=stored))
    assert ids(tasks) == ["1", "9007199254740992", "9007199254740993", "9223372036854775807"]


def test_missing_integer_id_is_refused_and_the_others_never_pass_through_float_ds_05(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"0\.parquet: 1 bad rows:\n  row 1, column task_id must not be empty"):
        read(tmp_path, table(3, task_id=[1, None, 9007199254740993]))


def test_ids_that_pandas_made_floats_are_refused_as_a_column_ds_05(tmp_path: Path) -> None:
    frame = table(3).to_pandas().assign(task_id=pd.Series([1, None, 9007199254740993]))
    assert str(frame.task_id.dtype) == "float64"
    frame.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"column task_id must be string or integer .*lost digits\), got double"):
        load_tasks([str(tmp_path / "x.parquet")])


@pytest.mark.parametrize("text", ["7.0", "-7.0", "9.007199254740992e+15", "1e5", "nan", "<NA>", "None"])
def test_text_ids_that_were_floats_are_refused_with_the_row_ds_05(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="row 1, column task_id must be an id that never was a float"):
        read(tmp_path, table(2, task_id=["7", text]))


def test_text_ids_that_only_look_alike_are_taken_ds_05(tmp_path: Path) -> None:
    given = ["007", "7", "v7.0", "7.0.1", "7.5", "e5", "Nano"]
    assert ids(read(tmp_path, table(7, task_id=given))) == given


def test_whole_floats_are_taken_as_difficulty_and_others_refused_with_the_row_ds_05(tmp_path: Path) -> None:
    tasks = read(tmp_path, table(2, difficulty=[3.0, 5.0]))
    assert [(item.difficulty, type(item.difficulty)) for item in tasks] == [(3, int), (5, int)]
    with pytest.raises(DataError) as caught:
        read(tmp_path, table(5, difficulty=[1.0, 2.5, float("nan"), 2.0**53 + 2, None]))
    message = str(caught.value)
    assert "row 0" not in message
    assert "row 1, column difficulty must be a whole number, got 2.5" in message
    assert "row 2, column difficulty must be a whole number, got nan" in message
    assert "row 3, column difficulty must be a whole number, got 9007199254740994.0" in message
    assert "row 4, column difficulty must not be empty" in message


DRIFT = {
    "null": table(task_id=["null"], hidden__tags=pa.nulls(1)),
    "empty lists": table(task_id=["empty"], hidden__tags=pa.array([[]], pa.list_(pa.null()))),
    "list of text": table(task_id=["list"], hidden__tags=pa.array([["x"]], pa.list_(TEXT))),
    "no column": table(task_id=["none"]),
    "large text": table(task_id=["large"], hidden__tags=pa.array(['["y"]'], pa.large_string())),
    "dictionary": table(task_id=["dictionary"], hidden__tags=pa.array(['["z"]']).dictionary_encode()),
}
TAGS = {"null": {}, "empty": {"tags": []}, "list": {"tags": ["x"]}, "none": {}}
TAGS |= {"large": {"tags": ["y"]}, "dictionary": {"tags": ["z"]}}


@pytest.mark.parametrize("order", list(itertools.permutations(DRIFT, 2)), ids="-".join)
def test_shards_of_different_columns_load_in_any_order_ds_04(tmp_path: Path, order: tuple[str, str]) -> None:
    shards = [DRIFT[name] for name in order]
    loaded = read(tmp_path, *shards)
    assert ids(loaded) == [shard.column("task_id")[0].as_py() for shard in shards]
    assert [item.hidden for item in loaded] == [TAGS[item.task_id] for item in loaded]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), TEXT)])
def test_text_of_any_make_is_text_ds_04(tmp_path: Path, kind: pa.DataType) -> None:
    given = table(task_id=pa.array(["a"], kind), family=pa.array(["f"], kind), payload=pa.array(['{"k": []}'], kind))
    assert read(tmp_path, given) == [Task(task_id="a", family="f", payload={"k": []})]


def test_required_column_of_nulls_only_is_refused_row_by_row_ds_04(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2 bad rows:\n  row 0, column payload must not be empty"):
        read(tmp_path, table(2, payload=pa.nulls(2)))


def test_lists_of_structs_become_plain_lists_for_template_and_json_ds_01(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
    frame = table(payload=[{"messages": messages, "empty": [], "deep": [[1], []]}]).to_pandas()
    frame.to_parquet(tmp_path / "x.parquet")
    [loaded] = load_tasks([str(tmp_path / "x.parquet")])
    assert loaded.payload == {"messages": messages, "empty": [], "deep": [[1], []]}
    assert json.loads(json.dumps(loaded.payload)) == loaded.payload
    template = jinja2.Template(
        "{% if messages %}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{% endif %}"
    )
    assert template.render(loaded.payload) == "user:hi;assistant:yes;"
    assert [type(value) for value in loaded.payload.values()] == [list, list, list]


def test_nulls_that_a_struct_added_are_stripped_at_every_depth_and_those_in_lists_stay_ds_02(tmp_path: Path) -> None:
    payloads = [
        {"calls": [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {"b": 2}}]},
        {"calls": [None], "other": [1, None]},
    ]
    stored = pa.array(payloads)
    assert stored[0].as_py()["calls"][0]["arguments"] == {"a": 1, "b": None}
    tasks = read(tmp_path, table(2, payload=stored))
    assert [item.payload for item in tasks] == payloads


def test_maps_become_objects_ds_02(tmp_path: Path) -> None:
    stored = pa.array([[("a", 1), ("b", None)], []], pa.map_(TEXT, pa.int64()))
    assert [item.payload for item in read(tmp_path, table(2, payload=stored))] == [{"a": 1}, {}]


def test_struct_value_that_json_has_not_is_refused_with_row_and_path(tmp_path: Path) -> None:
    stored = pa.array([{"x": [{"when": None}]}, {"x": [{"when": pd.Timestamp(0)}]}])
    with pytest.raises(DataError, match=r"row 1, column payload must hold JSON values, got .* at \.x\[0\]\.when"):
        read(tmp_path, table(2, payload=stored))
    stored = pa.array([{"x": pa.scalar(2**62, pa.timestamp("ms"))}])
    with pytest.raises(DataError, match=r"row 0, column payload cannot be read: "):
        read(tmp_path, table(payload=stored))
    with pytest.raises(DataError, match=r"row 0, column payload must hold JSON values, got nan at \.x"):
        read(tmp_path, table(payload=pa.array([{"x": float("nan")}])))


def test_null_in_a_field_that_is_declared_as_required_is_refused_with_row_and_path_ds_11() -> None:
    message = pa.struct([pa.field("role", TEXT, nullable=False), pa.field("content", TEXT, nullable=False)])
    kind = pa.struct([pa.field("messages", pa.list_(message))])
    rows = [
        {"messages": [{"role": "user", "content": "a"}]},
        {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": None}]},
    ]
    given = table(2, payload=pa.array(rows, kind))
    faults = RowFaults()
    tasks = RowParser(given.schema, None).parse(given, 0, faults)
    assert [item.payload for item in tasks] == rows[:1]
    assert faults.describe("x") == (
        "x: 1 bad rows:\n  row 1, column payload must have no null where one is declared as required, "
        "got one at .messages[1].content"
    )


def test_null_in_a_required_column_of_a_file_from_elsewhere_is_refused_ds_11(tmp_path: Path) -> None:
    for name in ("task_id", "family", "difficulty", "payload"):
        values = [table().column(name)[0].as_py(), None]
        with pytest.raises(DataError, match=f"row 1, column {name} must not be empty"):
            read(tmp_path, table(2, **{name: values}))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": NaN}', "NaN is no JSON number"),
        ("[" * 100_000, "recursion"),
        ('{"a": 1} x', "Extra data"),
        ("", "Expecting"),
    ],
)
def test_payload_that_is_no_strict_json_is_refused_with_the_row(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(DataError, match=f"row 1, column payload must be JSON text: .*{reason}"):
        read(tmp_path, table(2, payload=["{}", text]))


def test_text_that_is_no_utf8_costs_its_row_and_no_other(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xff\xfe")]
    )
    with pytest.raises(DataError, match=r"1 bad rows:\n  row 1, column task_id cannot be read: .* invalid start byte"):
        read(tmp_path, table(2, task_id=broken))


def test_escaped_lone_surrogate_in_a_file_is_read_as_replacement_and_counted_ds_10(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    payloads = ['{"a": "x\\ud800y", "\\uDFFF": 1}', '{"a": "\\ud83d\\ude00"}']
    loaded = read(tmp_path, table(2, payload=payloads))
    assert [item.payload for item in loaded] == [{"a": "x\ufffdy", "\ufffd": 1}, {"a": "\U0001f600"}]
    assert "2 lone surrogates in task files were read as U+FFFD" in caplog.text

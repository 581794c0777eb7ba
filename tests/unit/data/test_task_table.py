"""A table over files gives the tasks that `load_tasks` gives, reading row groups on demand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from skyrl_nat.data import specs, task_table, task_writer
from skyrl_nat.data.prompts import WINDOW, PromptStream
from skyrl_nat.data.specs import load_tasks, open_tasks, write_shards, write_tasks
from skyrl_nat.data.task_source import TaskList, check_disjoint
from skyrl_nat.data.task_table import GROUPS_HELD, TaskTable
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

ROOT = Path(__file__).resolve().parents[3]
GROUP = 10


def task(number: int) -> Task:
    """Difficulty 1, 2, 3, 1, ...; the third hundred has difficulty 5 only."""
    difficulty = 5 if number // 100 == 2 else number % 3 + 1
    hidden = {"h": [number]} if number % 2 else {}
    return Task(task_id=f"t{number:04}", family="f", payload={"n": number}, hidden=hidden, difficulty=difficulty)


TASKS = [task(number) for number in range(505)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Three shards of 51 row groups in all."""
    monkeypatch.setattr(task_writer, "GROUP_ROWS", GROUP)
    write_shards(TASKS, tmp_path / "set", rows_per_file=200)
    return str(tmp_path / "set")


@pytest.mark.parametrize("limit", [5, 3, 1])
def test_table_holds_what_load_tasks_gives_in_its_order(folder: str, limit: int) -> None:
    expected = load_tasks([folder], max_difficulty=limit)
    table = TaskTable.open([folder], max_difficulty=limit)
    assert [table[index] for index in range(len(table))] == expected
    assert list(table.ids()) == [item.task_id for item in expected]
    assert table.difficulties.tolist() == [item.difficulty for item in expected]
    assert table.num_left_out == 505 - len(expected)
    for index in (-1, len(table)):
        with pytest.raises(IndexError, match=f"got {index}"):
            table[index]


def test_blocks_are_row_groups_without_those_of_which_no_row_is_kept(folder: str) -> None:
    assert TaskTable.open([folder]).block_starts.tolist() == [*range(0, 501, GROUP), 505]
    table = TaskTable.open([folder], max_difficulty=3)
    assert table.block_starts.tolist() == [*range(0, 401, GROUP), 405]
    assert table[200].task_id == "t0300"


def test_epoch_reads_every_row_group_once(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    now = TaskTable._read_block_now
    monkeypatch.setattr(TaskTable, "_read_block_now", lambda self, block: read.append(block) or now(self, block))
    table = TaskTable.open([folder])
    stream = PromptStream(table, seed=1)
    assert sorted(stream.next()[1].task_id for _ in range(505)) == [item.task_id for item in TASKS]
    assert sorted(read) == list(range(51))
    assert WINDOW <= GROUPS_HELD
    del read[:]
    PromptStream(table, seed=1, position=505 * 7 + 333).next()
    assert len(read) <= 1


def test_hidden_half_columns_that_a_shard_lacks_are_absent_ds_04(tmp_path: Path) -> None:
    write_tasks([task(0)], tmp_path / "0.parquet")
    write_tasks([task(1)], tmp_path / "1.parquet")
    for order in ("01", "10"):
        table = TaskTable.open([str(tmp_path / f"{name}.parquet") for name in order])
        assert [table[0], table[1]] == [task(int(name)) for name in order]


def test_bad_files_and_rows_and_duplicates_are_refused_at_opening_ds_05_ds_07(folder: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"got 505 of them twice: t0000, t0001, t0002, t0003, t0004\. "):
        TaskTable.open([folder, folder])
    (tmp_path / "empty.parquet").touch()
    with pytest.raises(DataError) as caught:
        TaskTable.open([folder, str(tmp_path / "empty.parquet")], family="g")
    message = str(caught.value)
    assert "4 of 4 files" in message
    assert "empty.parquet: the file is empty (0 bytes)" in message
    assert "part-00001.parquet: 200 bad rows, the first 5 of them:\n  row 0, column family must be g, got f" in message


def test_row_group_that_is_too_large_is_refused_with_its_size(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_table, "MAX_GROUP_BYTES", 100)
    with pytest.raises(DataError, match="a row group must be at most 0 MiB in a set that is not held"):
        TaskTable.open([folder])


def test_file_that_changes_while_it_is_read_is_refused(folder: str) -> None:
    table = TaskTable.open([folder])
    os.utime(Path(folder) / "part-00001.parquet", ns=(1, 1))
    assert table[0] == TASKS[0]
    with pytest.raises(DataError, match=r"part-00001\.parquet must not change while tasks are read from it"):
        table[200]


@pytest.mark.parametrize(("name", "limit"), [("MAX_ROWS_HELD", 504), ("MAX_BYTES_HELD", 1000)])
def test_large_sets_stay_on_disk_and_small_ones_are_held(
    folder: str, monkeypatch: pytest.MonkeyPatch, name: str, limit: int
) -> None:
    small = open_tasks([folder])
    monkeypatch.setattr(specs, name, limit)
    large = open_tasks([folder])
    assert (type(small), type(large)) == (TaskList, TaskTable)
    for source in (small, large):
        assert [source[index] for index in range(len(source))] == TASKS
        check_disjoint(source, [task(900)])
        with pytest.raises(DataError, match=r"both sets hold: t0003, t0007\. Split again"):
            check_disjoint(source, [task(7), task(3), task(900)])


def test_set_of_which_nothing_is_left_is_refused_with_counts_ds_08(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specs, "MAX_ROWS_HELD", 0)
    write_tasks([task(1), task(2)], tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"got 2 rows in 1 files of which 2 are above .*max_difficulty \(1\)"):
        open_tasks([str(tmp_path / "x.parquet")], max_difficulty=1)


def test_index_takes_two_bytes_per_row(tmp_path: Path) -> None:
    write_tasks((task(number) for number in range(20_000)), tmp_path / "x.parquet", hidden_names=["h"])
    table = TaskTable.open([str(tmp_path / "x.parquet")])
    arrays = [value for value in vars(table).values() if isinstance(value, np.ndarray)]
    assert sum(array.nbytes for array in arrays if len(array) == 20_000) == 20_000 * 2
    assert sum(array.nbytes for array in arrays if len(array) != 20_000) < 40 * 20 + 8


def test_ten_times_the_rows_take_hardly_more_memory() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "prompt_stream_memory.py")]
    done = subprocess.run(
        [*command, "--rows", "20000", "200000", "--prompts", "5000"],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    report = json.loads(done.stdout)
    assert [run["rows"] for run in report["runs"]] == [20_000, 200_000]
    assert report["peak_growth_mib"] < 16

"""Tasks pass through the Hugging Face library and come back as they were."""

from pathlib import Path

import datasets
import pytest

from skyrl_nat.data.hf_datasets import from_dataset, to_dataset
from skyrl_nat.data.specs import load_tasks, write_tasks
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

TASKS = [
    Task(
        task_id=f"t{i}",
        family="f",
        payload={"calls": [{f"k{i % 3}": i}, {}, None], "big": 2**53 + 1 + i, "text": "\U0001f600 e\u0301"},
        hidden={"vectors": [i, None]} if i % 2 else {},
        difficulty=i % 5 + 1,
    )
    for i in range(2500)
]


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()


def test_round_trip_is_exact_ds_01_ds_02() -> None:
    dataset = to_dataset(TASKS)
    assert dataset.column_names == ["task_id", "family", "difficulty", "payload", "hidden.vectors"]
    assert from_dataset(dataset) == TASKS
    assert from_dataset(dataset.to_iterable_dataset()) == TASKS


def test_chosen_filtered_and_sorted_rows_come_back_in_their_order() -> None:
    dataset = to_dataset(TASKS)
    assert from_dataset(dataset.select([7, 2])) == [TASKS[7], TASKS[2]]
    hard = dataset.filter(lambda row: row["difficulty"] == 5).sort("difficulty")
    assert from_dataset(hard) == TASKS[4::5]


def test_files_are_task_files_on_both_sides(tmp_path: Path) -> None:
    to_dataset(TASKS).to_parquet(tmp_path / "theirs.parquet")
    assert load_tasks([str(tmp_path / "theirs.parquet")]) == TASKS
    write_tasks(TASKS, tmp_path / "ours.parquet")
    loaded = datasets.Dataset.from_parquet(str(tmp_path / "ours.parquet"), cache_dir=str(tmp_path / "cache"))
    assert from_dataset(loaded) == TASKS
    loaded.save_to_disk(tmp_path / "folder")
    assert from_dataset(datasets.load_from_disk(tmp_path / "folder")) == TASKS


def test_structs_that_the_library_filled_with_nulls_are_stripped_ds_02() -> None:
    rows = {"task_id": ["a", "b"], "family": ["f", "f"], "difficulty": [1, 1], "payload": [{"a": 1}, {"b": [2]}]}
    dataset = datasets.Dataset.from_dict(rows)
    assert dataset[0]["payload"] == {"a": 1, "b": None}
    assert [item.payload for item in from_dataset(dataset)] == rows["payload"]


def test_bad_rows_are_all_counted_with_their_number_in_the_dataset() -> None:
    rows = [{"task_id": f"t{i}", "family": "f", "difficulty": 1, "payload": "{}"} for i in range(1500)]
    rows[3]["payload"] = rows[1400]["payload"] = "{"
    with pytest.raises(DataError, match=r"2 bad rows:\n  row 3, column payload .*\n  row 1400, column payload"):
        from_dataset(datasets.Dataset.from_list(rows))


def test_what_is_no_single_split_or_has_other_columns_or_an_id_twice_is_refused() -> None:
    dataset = to_dataset(TASKS[:3])
    with pytest.raises(DataError, match=r"must be one split, got DatasetDict\. Choose one"):
        from_dataset(datasets.DatasetDict(train=dataset))
    with pytest.raises(DataError, match="The dataset: has no column payload"):
        from_dataset(dataset.remove_columns("payload"))
    with pytest.raises(DataError, match=r"1 of them twice: t1\. "):
        from_dataset(dataset.select([0, 1, 1]))
    with pytest.raises(DataError, match="row 0, column family must be g, got f"):
        from_dataset(dataset, family="g")

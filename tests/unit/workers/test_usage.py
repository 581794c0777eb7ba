"""What a rank says it was busy with."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from policy_ranks import make_grid, make_samples, make_worker

from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.config.model import Offload
from skyrl_nat.monitoring.usage import Activity

pytestmark = pytest.mark.usefixtures("leave_group")


def test_a_rank_notes_what_keeps_its_device_busy_and_nothing_else(folder: Path) -> None:
    worker = make_worker(folder)
    [row], constants = make_grid(make_samples())
    assert worker.usage().intervals == [], "building is no part of a step"
    worker.compute_logprobs(row)
    worker.train(row, constants)
    worker.weight_manifest()
    worker.export_weights()
    worker.offload(Offload.optimizer)
    worker.onload()
    usage = worker.usage()
    kinds = [activity for activity, _, _ in usage.intervals]
    assert kinds[:3] == [Activity.TRAIN, Activity.TRAIN, Activity.PUSH]
    assert set(kinds[3:]) == {Activity.OFFLOAD}
    assert all(end >= start for _, start, end in usage.intervals)
    assert usage.card == "", "a CPU is no card"
    assert worker.usage().intervals == []


def test_a_rank_counts_micro_batches_one_by_one(folder: Path) -> None:
    """Whoever watches progress sees it within a call, too: two that are scored, then trained."""
    worker = make_worker(folder)
    [row], constants = make_grid(make_samples())
    assert len(row) == 2
    counts = []

    def noting() -> Iterator[MicroBatch]:
        for micro_batch in row:
            counts.append(worker.num_micro_batches)
            yield micro_batch

    worker.compute_logprobs(noting())  # type: ignore[arg-type]
    worker.train(noting(), constants)  # type: ignore[arg-type]
    assert [*counts, worker.num_micro_batches] == [0, 1, 2, 3, 4]

"""Joining and leaving the group of ranks."""

import pytest
import torch.distributed as dist
from policy_ranks import free_port

from skyrl_nat.errors import WorkerError
from skyrl_nat.workers import process_group


def test_a_single_rank_joins_keeps_its_group_and_leaves() -> None:
    process_group.destroy_group()
    process_group.init_group("cpu", 0, 1, "127.0.0.1", free_port(), 30)
    process_group.init_group("cpu", 0, 1, "127.0.0.1", free_port(), 30)
    assert process_group.data_parallel_mesh("cpu").size() == 1
    with pytest.raises(WorkerError, match="one process group"):
        process_group.init_group("cpu", 0, 2, "127.0.0.1", free_port(), 30)
    process_group.destroy_group()
    process_group.destroy_group()
    assert not dist.is_initialized()


def test_ranks_that_do_not_meet_are_named() -> None:
    """Every wait has a deadline and an owner."""
    process_group.destroy_group()
    with pytest.raises(WorkerError, match="rank 1"):
        process_group.init_group("cpu", 1, 2, "127.0.0.1", free_port(), 1.0)

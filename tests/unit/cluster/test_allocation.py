"""Ray counts what Slurm gave this job on this node, never the whole node."""

import pytest

from skyrl_nat.cluster.allocation import Share, read_allocation, read_machine, read_share
from skyrl_nat.errors import ConfigError

MIB = 1024**2
NODE = Share(num_cpus=64, num_gpus=0, memory_bytes=512_000 * MIB)


@pytest.mark.parametrize(
    ("environment", "num_cpus", "memory_mib", "num_notes"),
    [
        ({"SLURM_CPUS_PER_TASK": "4", "SLURM_MEM_PER_NODE": "16000"}, 4, 16_000, 0),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_CPUS_PER_TASK": "4", "SLURM_MEM_PER_CPU": "2000"}, 8, 16_000, 0),
        ({"SLURM_CPUS_ON_NODE": "4(x2)", "SLURM_MEM_PER_NODE": "0"}, 4, 512_000, 0),
        ({"SLURM_CPUS_ON_NODE": "4"}, 4, 512_000, 1),
        ({}, 64, 512_000, 2),
    ],
)
def test_share_is_slurms_and_what_it_does_not_say_is_the_machines_with_a_note(
    environment: dict[str, str], num_cpus: int, memory_mib: int, num_notes: int
) -> None:
    """RY-11."""
    share = read_share(environment, machine=NODE)
    assert (share.num_cpus, share.memory_bytes, len(share.notes)) == (num_cpus, memory_mib * MIB, num_notes)


@pytest.mark.parametrize(
    ("environment", "num_gpus"),
    [
        ({}, 0),
        ({"SLURM_GPUS_ON_NODE": "8"}, 8),
        ({"SLURM_GPUS_ON_NODE": "8", "CUDA_VISIBLE_DEVICES": "2,5"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "GPU-3f1a,MIG-77b0,GPU-9c"}, 3),
        ({"SLURM_GPUS_ON_NODE": "8", "CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 0),
    ],
)
def test_gpus_are_those_that_are_visible_in_the_job(environment: dict[str, str], num_gpus: int) -> None:
    """RY-05."""
    assert read_share(environment, machine=NODE).num_gpus == num_gpus


def test_a_third_of_the_memory_is_the_object_stores_up_to_a_bound() -> None:
    assert read_share({"SLURM_MEM_PER_NODE": "10000"}, machine=NODE).object_store_bytes == 3000 * MIB
    assert Share(num_cpus=1, num_gpus=0, memory_bytes=2048 * 1024**3).object_store_bytes == 200 * 1024**3


def test_number_that_is_none_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigError, match="SLURM_CPUS_ON_NODE must be a number, as Slurm sets it, got 'many'"):
        read_share({"SLURM_CPUS_ON_NODE": "many"}, machine=NODE)


def test_job_is_read_and_there_must_be_one() -> None:
    job = read_allocation({"SLURM_JOB_ID": "17", "SLURM_JOB_NUM_NODES": "2", "SLURM_RESTART_COUNT": "3"})
    assert (job.job_id, job.num_nodes, job.num_restarts) == ("17", 2, 3)
    with pytest.raises(ConfigError, match="must run inside a Slurm job"):
        read_allocation({})


def test_machine_has_at_least_a_core_and_some_memory() -> None:
    machine = read_machine()
    assert machine.num_cpus >= 1
    assert machine.memory_bytes > 256 * MIB

"""What Slurm gave this job on this node, read from its variables: the share, never the whole node."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from skyrl_nat.errors import ConfigError

MIB = 1024**2
OBJECT_STORE_SHARE = 0.3
"""Of the memory, as Ray takes it of a whole node."""
LONGEST_OBJECT_STORE_BYTES = 200 * 1024**3
CGROUP_LIMITS = ("memory.max", "memory.limit_in_bytes")
"""Files of version 2 and 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What Ray may count on one node."""

    num_cpus: int
    num_gpus: int
    memory_bytes: int
    notes: tuple[str, ...] = ()
    """What Slurm did not say and was taken from the machine."""

    @property
    def object_store_bytes(self) -> int:
        """Upper bound of what Ray's objects take; pages are only taken when they are written."""
        return min(int(self.memory_bytes * OBJECT_STORE_SHARE), LONGEST_OBJECT_STORE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The job."""

    job_id: str
    num_nodes: int
    num_restarts: int
    """Times that Slurm has put the job back into its queue."""


def read_allocation(environment: Mapping[str, str]) -> Allocation:
    """Return the job of this process.

    Raises:
        ConfigError: Outside of a job.
    """
    job_id = environment.get("SLURM_JOB_ID", "")
    if not job_id:
        raise ConfigError(
            "slurm/train.sbatch must run inside a Slurm job, found no SLURM_JOB_ID. Submit it with sbatch, or use "
            "`skyrl-nat train` where there is no Slurm"
        )
    return Allocation(
        job_id=job_id,
        num_nodes=_number(environment, "SLURM_JOB_NUM_NODES", "SLURM_NNODES") or 1,
        num_restarts=_number(environment, "SLURM_RESTART_COUNT") or 0,
    )


def read_share(environment: Mapping[str, str], *, machine: Share | None = None) -> Share:
    """Return this node's share of the job that this process belongs to.

    Args:
        environment: Of a process of the job on this node; one task per node.
        machine: What the process may use at all; taken where Slurm says nothing. None asks the system.
    """
    machine = machine or read_machine()
    notes: list[str] = []
    num_cpus = _number(environment, "SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK")
    if num_cpus is None:
        num_cpus = machine.num_cpus
        notes.append(f"Slurm names no number of cores: all {num_cpus} that this process may use are taken")
    memory_mib = _number(environment, "SLURM_MEM_PER_NODE")
    if memory_mib is None and (per_cpu := _number(environment, "SLURM_MEM_PER_CPU")) is not None:
        memory_mib = per_cpu * num_cpus
    # 0 means all that the node has.
    memory = memory_mib * MIB if memory_mib else machine.memory_bytes
    if memory_mib is None:
        notes.append(f"Slurm names no memory: the {memory // MIB} MiB that this process may use are taken")
    return Share(num_cpus=num_cpus, num_gpus=_num_gpus(environment), memory_bytes=memory, notes=tuple(notes))


def read_machine() -> Share:
    """Return what this process may use: cores of its affinity, memory of its cgroup or else of the node."""
    limits = [limit for name in CGROUP_LIMITS if (limit := _cgroup_limit(name)) is not None]
    memory = min([psutil.virtual_memory().total, *limits])
    return Share(num_cpus=len(os.sched_getaffinity(0)), num_gpus=0, memory_bytes=memory)


def _num_gpus(environment: Mapping[str, str]) -> int:
    """Return how many GPUs Slurm made visible; without its word there are none for this job."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() not in ("", "-1", "NoDevFiles")])
    return _number(environment, "SLURM_GPUS_ON_NODE") or 0


def _number(environment: Mapping[str, str], *names: str) -> int | None:
    """Return the first of these variables that is set; `4(x2)` is 4 on each of two nodes."""
    for name in names:
        if text := environment.get(name):
            try:
                return int(text.split(",")[0].split("(")[0])
            except ValueError as error:
                raise ConfigError(f"{name} must be a number, as Slurm sets it, got {text!r}. Unset it") from error
    return None


def _cgroup_limit(name: str) -> int | None:
    for folder in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")):
        try:
            return int((folder / name).read_text())
        except (OSError, ValueError):
            continue
    return None

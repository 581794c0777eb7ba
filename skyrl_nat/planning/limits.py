"""How much of a machine this process may use: control groups (both versions) and Slurm say less than all."""

import re
from collections.abc import Mapping
from pathlib import Path

UNLIMITED = 1 << 60
"""Version 1 writes a number near 2**63 for no limit."""


def cgroup_folders(root: Path) -> list[Path]:
    """Return the folders of this process's control groups, the innermost first.

    Args:
        root: `/`, or a recorded tree of the files below it.
    """
    listed = root / "proc/self/cgroup"
    if not listed.is_file():
        return []
    base, found = root / "sys/fs/cgroup", []
    for line in listed.read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        for name in {controllers, *controllers.split(",")} - {""} or {""}:
            folder = base / name / path.lstrip("/")
            # In a container the path may be the host's; its own group is then the root of what it sees.
            inside = [place for place in (folder, *folder.parents) if place.is_relative_to(base)]
            found += [place for place in inside if place.is_dir()]
    return list(dict.fromkeys(found))


def memory_limit(root: Path) -> int | None:
    """Return the bytes that the tightest control group around this process allows, None where none does."""
    limits = []
    for folder in cgroup_folders(root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name)
            if text.isdigit() and int(text) < UNLIMITED:
                limits.append(int(text))
    return min(limits, default=None)


def cpu_limit(root: Path) -> float | None:
    """Return the cores that control groups allow by quota or by a set of cores, None where they allow all."""
    limits: list[float] = []
    for folder in cgroup_folders(root):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            limits.append(int(quota) / int(period))
        for name in ("cpuset.cpus.effective", "cpuset.cpus"):
            if cores := _read(folder / name):
                limits.append(count_listed(cores))
    return min(limits, default=None)


def count_listed(text: str) -> int:
    """Return how many numbers a list such as `0-3,8,10-11` names."""
    total = 0
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        total += int(last or first) - int(first) + 1
    return total


def slurm_limits(environment: Mapping[str, str]) -> dict[str, int]:
    """Return what a Slurm job was given on this node: `cores`, `memory_mib`, `gpus`, `nodes`; {} outside a job.

    Args:
        environment: Variables of the process.
    """
    if "SLURM_JOB_ID" not in environment:
        return {}
    cores = _first_number(environment, "SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE")
    found = {
        "cores": cores,
        "gpus": _gpus(environment),
        "nodes": _first_number(environment, "SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
        "memory_mib": _first_number(environment, "SLURM_MEM_PER_NODE"),
    }
    per_core = _first_number(environment, "SLURM_MEM_PER_CPU")
    if not found["memory_mib"] and per_core and cores:
        found["memory_mib"] = per_core * cores
    return {name: number for name, number in found.items() if number}


def _gpus(environment: Mapping[str, str]) -> int:
    if listed := environment.get("SLURM_JOB_GPUS", environment.get("SLURM_STEP_GPUS", "")):
        return count_listed(listed)
    return _first_number(environment, "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE")


def _first_number(environment: Mapping[str, str], *names: str) -> int:
    """Return the first number in the first of these variables that holds one, such as 16 in `16(x2)` or `h100:8`."""
    for name in names:
        if found := re.search(r"(?<![a-zA-Z\d])\d+", environment.get(name, "")):
            return int(found[0])
    return 0


def _read(path: Path) -> str:
    """Return what a file of a control group says, empty where there is none or it may not be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""

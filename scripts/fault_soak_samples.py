"""What the processes of a run hold, by worker, and what lies in its shared memory."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from process_family import family, held, size_of, thread_names

WHOLE = "all processes"
SHARED = "shared memory"
CONTROLLER = "controller"
SPARED_ROLES = ("engine", "environment", "reward")
"""Roles whose last worker is never hurt, so that one process of them can be followed to the end."""


class Topology:
    """Which worker is which process, as the run has written it down."""

    def __init__(self, path: Path) -> None:
        """Take the path of `topology.json`; it is read at every question."""
        self._path = path

    def members(self) -> dict[str, int]:
        """Return process ids by role and rank, `engine 0`."""
        identities = json.loads(self._path.read_text(encoding="utf-8"))["identities"]
        return {
            f"{role} {rank}": found["pid"] for role, ranks in identities.items() for rank, found in enumerate(ranks)
        }

    @staticmethod
    def spared(names: Iterable[str]) -> set[str]:
        """Return those that are never hurt."""
        return {max((name for name in names if name.startswith(role)), default="") for role in SPARED_ROLES}


def private_shared_memory() -> list[str]:
    """Return what gives a command a /dev/shm of its own, so that all that lies there is the command's.

    Empty where the machine does not allow that: then it is the machine's, with what others have there.
    """
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    script = 'mount -t tmpfs run /dev/shm && exec "$@"'
    prefix = ["unshare", *user, "--mount", "sh", "-c", script, "sh"]
    is_there = shutil.which("unshare") is not None
    return prefix if is_there and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0 else []


class Sampler:
    """Counts what a run holds. Orphans of the run must be children of this process."""

    def __init__(self, controller: int, topology: Topology) -> None:
        """Look into the shared memory of a run that is there."""
        self._controller = controller
        self._topology = topology
        # Open, it can be read when all processes of the run are gone.
        self._shared = os.open(f"/proc/{controller}/root/dev/shm", os.O_RDONLY | os.O_DIRECTORY)

    def sample(self) -> dict[str, dict[str, float]]:
        """Return what is held now: by process, of all together, and of shared memory."""
        orphans(self._controller)
        processes = family(os.getpid())[1:]
        members = {pid: name for name, pid in self._topology.members().items()} | {self._controller: CONTROLLER}
        parents = {process.pid: process.ppid() for process in processes if process.is_running()}
        groups: dict[str, list[psutil.Process]] = {}
        for process in processes:
            groups.setdefault(_name_of(process, members, parents), []).append(process)
        pids = {name: pid for pid, name in members.items()}
        found: dict[str, dict[str, Any]] = {
            name: {"pid": pids.get(name, group[0].pid), **asdict(held(group))} for name, group in groups.items()
        }
        for one in found.values():
            one["thread_names"] = thread_names(one["pid"])
        mib, files = size_of(self._shared)
        return found | {WHOLE: asdict(held(processes)), SHARED: {"mib": mib, "files": files}}

    def shared_files(self) -> list[str]:
        """Return the names in shared memory."""
        return sorted(os.listdir(self._shared))  # noqa: PTH208


def orphans(controller: int) -> list[psutil.Process]:
    """Return what came to this process from a run, its controller left out; those that have ended are reaped."""
    found = []
    for child in psutil.Process().children():
        if child.pid != controller:
            with contextlib.suppress(psutil.Error, ChildProcessError):
                if child.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(child.pid, os.WNOHANG)
                else:
                    found.append(child)
    return found


def _name_of(process: psutil.Process, members: dict[int, str], parents: dict[int, int]) -> str:
    """Return the worker that a process is or belongs to, or what it is of Ray's own."""
    pid = process.pid
    while pid in parents:
        if pid in members and members[pid] != CONTROLLER:
            return members[pid]
        pid = parents[pid]
    if process.pid in members:
        return CONTROLLER
    try:
        name, words = process.name(), process.cmdline()
    except psutil.Error:
        return "gone"
    if name in ("raylet", "gcs_server"):
        return name
    scripts = [Path(word).name for word in words if word.endswith(".py")]
    return "starting" if not scripts or "worker" in scripts[0] else f"ray {scripts[0]}"

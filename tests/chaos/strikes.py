"""How each fault is made, by the controller's process at the moment that the plan names."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from chaos.armed import arm, folder, note
from chaos.cells import Cell
from marked_processes import words_of

CLOCK_JUMP_S = 3600.0
BETWEEN_SIGNALS_S = 0.03
BALLAST = "ballast"
CABLES = "SKYRL_NAT_CHAOS_CABLES"
"""Environment variable: what the name of every node's cable begins with."""


@dataclass
class Scene:
    """The run as a fault finds it."""

    step: int = 0
    """Trained so far."""
    phase: str = "start"
    """Of `Devices`."""
    groups: dict[str, Any] = field(default_factory=dict)
    """Workers by role."""

    def pid(self, victim: str, rank: int) -> int:
        """Return the process id of a victim; of a role that is not being called its first worker's."""
        if victim == "controller":
            return os.getpid()
        identities = self.groups[victim].identities
        return identities[rank if rank in identities else min(identities)]["pid"]

    def is_well(self) -> bool:
        """Return whether every worker is there: none is left out, and all processes that are known live and run."""
        return all(
            set(group.ranks) == set(group.identities) and all(runs(one["pid"]) for one in group.identities.values())
            for group in self.groups.values()
        )

    def give_back(self) -> None:
        """Give back what a fault has taken: a full disk is full for a step or a phase."""
        ballast().unlink(missing_ok=True)


def runs(pid: int) -> bool:
    """Return whether a process lives and does not stand still."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    return False


Strike = Callable[[Scene, Cell, int], None]


def arm_worker(scene: Scene, cell: Cell, rank: int) -> None:
    """Let the worker that is about to be called make the fault itself."""
    arm(*cell.point, cell.fault, cell.times)


def kill(scene: Scene, cell: Cell, rank: int) -> None:
    """End the victim as the kernel would."""
    os.kill(scene.pid(cell.victim, rank), signal.SIGKILL)


def stop(scene: Scene, cell: Cell, rank: int) -> None:
    """Let the victim stand still for ever."""
    os.kill(scene.pid(cell.victim, rank), signal.SIGSTOP)


def stop_for(seconds: float) -> Strike:
    """Return what lets the victim stand still, and wakes it from outside."""

    def strike(scene: Scene, cell: Cell, rank: int) -> None:
        pid = scene.pid(cell.victim, rank)
        code = f"import os, time; time.sleep({seconds}); os.kill({pid}, 18)"
        subprocess.Popen([sys.executable, "-S", "-c", code])
        os.kill(pid, signal.SIGSTOP)

    return strike


def terminate_twice(scene: Scene, cell: Cell, rank: int) -> None:
    """Send SIGTERM, and again while the run is ending."""
    asyncio.get_running_loop().call_later(BETWEEN_SIGNALS_S, os.kill, os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)


def move_clock(seconds: float) -> Strike:
    """Return what moves the controller's wall clock, as somebody who sets it does; monotonic clocks do not move."""

    def strike(scene: Scene, cell: Cell, rank: int) -> None:
        before = time.time
        time.time = lambda: before() + seconds

    return strike


def ballast() -> Path:
    """Return the file that fills the disk of the run."""
    return folder().with_suffix("") / BALLAST


def fill_disk(scene: Scene, cell: Cell, rank: int) -> None:
    """Write until the disk of the run takes no more."""
    with contextlib.suppress(OSError), ballast().open("wb", buffering=0) as file:
        for size in (2**16, 2**12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


def cut_node(scene: Scene, cell: Cell, rank: int) -> None:
    """Pull the cable of the policy's node, or of the other one."""
    home = scene.groups["policy"].identities[0]["node"]
    others = [one["node"] for one in scene.groups["engine"].identities.values() if one["node"] != home]
    name = home if cell.victim == "policy's node" else others[0]
    subprocess.run(["ip", "link", "set", os.environ[CABLES] + name, "down"], check=True)


def end_tracker(scene: Scene, cell: Cell, rank: int) -> None:
    """Kill WandB's own processes."""
    found = [child for child in psutil.Process().children(recursive=True) if "wandb" in " ".join(words_of(child))]
    note(what="tracker", pids=[child.pid for child in found])
    for child in found:
        child.kill()


STRIKES: dict[str, Strike] = {
    "SIGKILL": kill,
    "SIGSTOP for ever": stop,
    # Longer than a probe may take.
    "SIGSTOP, then SIGCONT": stop_for(8.0),
    # Longer than the deadline of a rollout.
    "SIGSTOP for 45 s": stop_for(45.0),
    "SIGTERM twice": terminate_twice,
    "clock jumps ahead": move_clock(CLOCK_JUMP_S),
    "clock jumps back": move_clock(-CLOCK_JUMP_S),
    "disk full": fill_disk,
    "tracker down": end_tracker,
    "network cut": cut_node,
}
"""All other faults are made by the worker itself."""
BEFORE = (arm_worker, fill_disk)
"""Strike before the call is sent; all others once it is in flight."""

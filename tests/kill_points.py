"""`skyrl-nat` in a process that kills itself at a chosen point: `python kill_points.py POINT STEP train key=value ...`.

What is cut is the product's own method, from outside, as soon as the run has trained `STEP` steps.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from skyrl_nat.checkpoint import manager
from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.cli import main
from skyrl_nat.controller import evaluate, loop
from skyrl_nat.controller.run import Run
from skyrl_nat.monitoring.tracker import JsonlBackend
from skyrl_nat.rollouts import recorder
from skyrl_nat.rollouts.runner import GroupRunner
from skyrl_nat.weight_sync.host import HostTransport

STEP = int(sys.argv[2])
reached = 0
"""Steps trained so far, see `note_steps`."""


def die(*_: Any, **__: Any) -> Any:
    """End as the kernel would end a process that is out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def cut(owner: Any, name: str, before: Callable[..., Any] = die) -> None:
    """Do something in the place of a method once the step is reached; `before` gets the method and its arguments."""
    method = getattr(owner, name)

    def replaced(*args: Any, **kwargs: Any) -> Any:
        return before(method, *args, **kwargs) if reached == STEP else method(*args, **kwargs)

    setattr(owner, name, replaced)


def cut_save(owner: Any, name: str, before: Callable[..., Any] = die) -> None:
    """Cut what is done for the checkpoint of the step, however far training has gone on meanwhile."""
    method = getattr(owner, name)

    def replaced(*args: Any) -> Any:
        is_it = any(isinstance(arg, dict) and arg.get("step") == STEP for arg in args)
        return before(method, *args) if is_it else method(*args)

    setattr(owner, name, replaced)


def note_steps() -> None:
    """Keep `reached` up to date: a run sets its step when it is loaded and when it has trained."""

    def set_step(self: Any, name: str, value: Any) -> None:
        global reached
        object.__setattr__(self, name, value)
        if name == "step":
            reached = value

    Run.__setattr__ = set_step  # type: ignore[method-assign]


async def after(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Do the work and die before anyone hears of it."""
    await method(*args, **kwargs)
    die()


def after_writing(method: Callable[..., Any], *args: Any) -> None:
    """Do the work and die."""
    method(*args)
    die()


def half_a_line(method: Callable[..., Any], backend: JsonlBackend, step: int, metrics: dict[str, float]) -> None:
    """Leave what a kill in the middle of a write leaves."""
    backend._file.write(f'{{"step": {step}, "loss/policy": 0.'.encode())
    backend._file.flush()
    die()


POINTS: dict[str, Callable[[], None]] = {
    "rollout": lambda: cut(GroupRunner, "_score_with_retries"),
    "training": lambda: cut(loop, "update_policy", after),
    "push": lambda: cut(HostTransport, "push", after),
    "rollouts": lambda: cut(recorder.Path, "replace"),
    "log": lambda: cut(JsonlBackend, "log", half_a_line),
    "checkpoint": lambda: cut_save(CheckpointManager, "commit"),
    "manifest": lambda: cut_save(manager, "write_manifest", after_writing),
    "evaluation": lambda: cut(evaluate, "play_tasks"),
}

if __name__ == "__main__":
    note_steps()
    POINTS[sys.argv[1]]()
    sys.exit(main(sys.argv[3:]))

"""`skyrl-nat` with faults to come: `python program.py PLAN train key=value ...`, see `Plan`.

Faults strike when the run itself is there: what is wrapped is the product's own calls, from outside. Each strikes once.
"""

import asyncio
import contextlib
import functools
import json
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from chaos.armed import note
from chaos.cells import BLOCK, Cell
from chaos.strikes import BEFORE, STRIKES, Scene, arm_worker

from skyrl_nat.cli import main
from skyrl_nat.cluster import topology
from skyrl_nat.cluster.group import ActorGroup
from skyrl_nat.config.cluster import Strategy
from skyrl_nat.config.rollout import EngineKind
from skyrl_nat.controller.devices import Devices
from skyrl_nat.controller.run import Run
from skyrl_nat.controller.stop_signals import leave
from skyrl_nat.monitoring.tracker import Tracker
from skyrl_nat.rollouts.recorder import RolloutRecorder

PHASES = {"train": "train", "push": "push", "save": "checkpoint"}
"""Phase of `Devices` -> name in the matrix; who plays is known by the rollout."""
BESIDE = {"write": "background save"}
"""Method of the policy that is called beside the run's phases -> name in the matrix."""
LABELS = {"train": "rollout", "eval": "evaluation"}
WELL_S = 90.0
"""Until a worker that was lost is replaced."""
_playing: ContextVar[str] = ContextVar("playing", default="")


class Plan:
    """The faults that have not struck so far."""

    def __init__(self, file: Path) -> None:
        """Read number, step and cell of each: lines of a JSON file."""
        entries = json.loads(file.read_text())
        self._pending = {entry["number"]: Cell(**entry["cell"]) for entry in entries}
        self._steps = {entry["number"]: entry["step"] for entry in entries}
        self.scene = Scene()

    def at_call(self, phase: str, role: str, method: str, rank: int, *, is_sent: bool) -> None:
        """Strike with what waits for this call."""
        for number, cell in list(self._pending.items()):
            is_there = self._steps[number] == self.scene.step and cell.phase == phase and cell.point == (role, method)
            strike = STRIKES.get(cell.fault, arm_worker)
            if is_there and is_sent == (strike not in BEFORE):
                del self._pending[number]
                note(what="fired", cell=number, step=self.scene.step, name=cell.name)
                strike(self.scene, cell, rank if cell.rank is None else cell.rank)

    async def until_well(self, devices: Devices) -> None:
        """Wait before the next block of steps until what an earlier fault hit is replaced; the watchdog lets it."""
        if self.scene.step % BLOCK or not self._pending:
            return
        deadline = time.monotonic() + WELL_S
        while not self.scene.is_well():
            if time.monotonic() > deadline:
                note(what="ill", step=self.scene.step)
                return
            with devices.in_phase(f"wait {deadline - time.monotonic():.2f} s"):
                await asyncio.sleep(0.05)


def current_phase(plan: Plan, method: str) -> str:
    """Return the phase in the matrix's words: of what goes on beside the run, or of the run."""
    return _playing.get() or BESIDE.get(method) or PHASES.get(plan.scene.phase, "")


def follow_run(plan: Plan) -> None:
    """Keep step and phase up to date."""

    def set_attribute(self: Any, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name == "step":
            plan.scene.step = value
            plan.scene.give_back()

    original = Devices.in_phase

    @contextlib.contextmanager
    def in_phase(self: Devices, name: str) -> Iterator[None]:
        with original(self, name):
            before, plan.scene.phase = plan.scene.phase, name
            try:
                yield
            finally:
                plan.scene.phase = before
                plan.scene.give_back()

    begin = Run.begin_step

    async def begin_step(self: Run) -> None:
        await plan.until_well(self.devices)
        await begin(self)

    Run.__setattr__ = set_attribute  # type: ignore[method-assign]
    Run.begin_step = begin_step  # type: ignore[method-assign]
    Devices.in_phase = in_phase  # type: ignore[method-assign]


def follow_calls(plan: Plan) -> None:
    """Look at every call to a worker, before it is sent and while it is in flight."""
    make, wait = ActorGroup.__init__, ActorGroup._waiting

    def init(self: ActorGroup, role: str, *args: Any, **kwargs: Any) -> None:
        make(self, role, *args, **kwargs)
        plan.scene.groups[role] = self

    @contextlib.contextmanager
    def waiting(self: ActorGroup, rank: int, method: str) -> Iterator[None]:
        with wait(self, rank, method):
            plan.at_call(current_phase(plan, method), self.role, method, rank, is_sent=True)
            yield

    def before(name: str, has_rank: bool) -> None:
        original = getattr(ActorGroup, name)

        @functools.wraps(original)
        def call(self: ActorGroup, *args: Any, **kwargs: Any) -> Any:
            rank, method = (args[0], args[1]) if has_rank else (self.ranks[0], args[0])
            if name in ("call_one", "call_often"):
                _playing.set(LABELS.get(label_of(args[2:]), ""))
            plan.at_call(current_phase(plan, method), self.role, method, rank, is_sent=False)
            return original(self, *args, **kwargs)

        setattr(ActorGroup, name, call)

    ActorGroup.__init__ = init  # type: ignore[method-assign]
    ActorGroup._waiting = waiting  # type: ignore[method-assign]
    for name in ("call_all", "call_each"):
        before(name, has_rank=False)
    for name in ("call_one", "call_often", "call_opaque", "tell"):
        before(name, has_rank=True)


def label_of(args: tuple[Any, ...]) -> str:
    """Return `train` or `eval` of the rollout that a call is about, empty where it is about none."""
    names = (
        getattr(one, "request_id", None) or getattr(one, "rollout_id", None) or one for one in (*args[:1], *args[-1:])
    )
    return next((name.partition("-")[0] for name in names if isinstance(name, str)), "")


def follow_files(plan: Plan) -> None:
    """Look at what the controller writes."""
    write, log = RolloutRecorder.write, Tracker.log

    def write_rollouts(self: Any, step: int, groups: Any, label: str = "train") -> Any:
        phase = "rollout file" if label == "train" else "evaluation file"
        plan.at_call(phase, "controller", "write", 0, is_sent=False)
        return write(self, step, groups, label)

    def log_step(self: Any, step: int, metrics: Any) -> None:
        if "loss/policy" in metrics:
            plan.at_call("log", "controller", "log", 0, is_sent=False)
        log(self, step, metrics)

    RolloutRecorder.write = write_rollouts  # type: ignore[method-assign]
    Tracker.log = log_step  # type: ignore[method-assign]


if __name__ == "__main__":
    the_plan = Plan(Path(sys.argv[1]))
    topology.POLICIES[Strategy.fsdp2] = "chaos.workers:ChaosPolicy"
    topology.ENGINES[EngineKind.hf] = "chaos.workers:ChaosEngine"
    follow_run(the_plan)
    follow_calls(the_plan)
    follow_files(the_plan)
    leave(main(sys.argv[2:]))

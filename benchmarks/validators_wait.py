"""The share of a step in which GPUs have nothing to do because validators and sandboxes work (bars P8 and I5).

usage: python benchmarks/validators_wait.py MODEL_FOLDER --output FILE [--bar P8] [--steps 4] [--tasks 16]
       [--rollouts 8] [--gpus 2] [--apart] [--workers 8] [--limit-s 400] [OVERRIDES ...]

Multi-turn NAT rollouts of the library's sample, colocated, or with `--apart` engines on cards of their own and
staleness 1. A small model would give validators nothing to do, so that
every environment gets the actions of the task's own solution, written, checked and tested file by file, and verdicts
are given on that solution; the tokens are the policy's (`--as-played` leaves both as they are). An engine waits for
validators while it has no request, the batch is not there yet, and an environment's call or a verdict is under way; the
value is that time over all engines, as a share of engines times the steps' time, the first step left out. Beside it
stands, for the same steps, what part of the machine's cores reward and environment workers kept busy, all processes
below them included (`cpu_share`; sandboxes in containers are not below them). P8 is one engine or two of a random
model, I5 eight of SmolLM2 as it plays. A turn that
is cut ends its rollout: where a model does not end its turns in 512 tokens, add `rollout.stop=["."]`. The sandbox's
interpreter is `.venv-nat` beside the package, or what SKYRL_NAT_SANDBOX_PYTHON names.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from bars import GRACE_S, attempt, parse, write_result
from open_story import in_open_run
from story_run import QUIET, account, layout

from skyrl_nat.cluster.clients import RemoteEngine, RemoteEnvironments, RemoteRewards
from skyrl_nat.config.environment import Form
from skyrl_nat.controller.loop import train
from skyrl_nat.controller.run import Run
from skyrl_nat.data.making.episodes import solution_actions
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.environments.nat_agent.payload import parse_spec
from skyrl_nat.planning.hardware import look
from skyrl_nat.types import Message, Rollout, Task

Phase = Callable[[], contextlib.AbstractAsyncContextManager[None]]

TARGET = 0.10
JUDGES = ("reward", "environment")
TASKS = "builtin:nat_agent/library_train"


class Watch:
    """Counts what is in flight, and adds up time by what it says of every engine."""

    def __init__(self) -> None:
        self.in_flight: Counter[str] = Counter()
        self.num_engines = 0
        self.is_rollout = False
        self.waits: list[float] = []
        """Engine-seconds of each rollout phase in which an engine waited for validators or environments."""
        self.seconds: Counter[str] = Counter()
        """Of all phases: engine-seconds by state."""
        self.roots: Callable[[], dict[str, set[int]]] = dict
        """Returns the processes whose use of the CPU counts, by role."""
        self.cpu_s: list[dict[str, float]] = []
        """CPU seconds that those have used when each phase begins, by role."""
        self._since = time.monotonic()

    def add(self, kind: str, number: int) -> None:
        """Say that a call begins or ends."""
        self._settle()
        self.in_flight[kind] += number

    def count(self, owner: type, method: str, kind: Any) -> None:
        """Count the calls of a method from now on; `kind` gets the object and returns the name."""
        original = getattr(owner, method)

        async def counted(this: Any, *args: Any) -> Any:
            name = kind(this)
            self.add(name, 1)
            try:
                return await original(this, *args)
            finally:
                self.add(name, -1)

        setattr(owner, method, counted)

    @contextlib.asynccontextmanager
    async def phase(self, of_run: Phase) -> AsyncIterator[None]:
        """Be the rollout phase of a run, and add up what it waits for."""
        self.cpu_s.append(cpu_seconds(self.roots()))
        self._settle()
        self.is_rollout = True
        self.waits.append(0.0)
        try:
            async with of_run():
                yield
        finally:
            self._settle()
            self.is_rollout = False

    def _settle(self) -> None:
        now = time.monotonic()
        passed, self._since = now - self._since, now
        if not self.is_rollout:
            return
        idle = sum(not self.in_flight[f"engine {rank}"] for rank in range(self.num_engines))
        self.seconds["busy"] += passed * (self.num_engines - idle)
        cause = next((name for name in ("score", "environment") if self.in_flight[name]), "neither")
        self.seconds[f"waits for {cause}"] += passed * idle
        if cause != "neither":
            self.waits[-1] += passed * idle

    def count_all(self) -> None:
        """Count all calls that matter; before a run is opened, since it keeps some of them."""
        self.count(RemoteEngine, "generate", lambda this: f"engine {this._rank}")
        self.count(RemoteEnvironments, "create", lambda this: "environment")
        self.count(RemoteEnvironments, "step", lambda this: "environment")
        self.count(RemoteRewards, "score", lambda this: "score")


def cpu_seconds(roots: Mapping[str, set[int]]) -> dict[str, float]:
    """Return the CPU seconds of processes and of all below them, those that ended included, by role.

    Args:
        roots: Ids of the uppermost processes by role.
    """
    found = {process.pid: process.info for process in psutil.process_iter(["ppid", "cpu_times"])}
    used = dict.fromkeys(roots, 0.0)
    for role, pids in roots.items():
        for above, info in found.items():
            while above in found and above not in pids:
                above = found[above]["ppid"]
            used[role] += sum(info["cpu_times"][:4]) if above in pids else 0.0
    return used


def play_solutions() -> None:
    """Give environments and validators the tasks' solutions in the place of what the policy says."""
    tasks = {task.task_id: task for task in load_tasks([TASKS])}
    actions: dict[str, Iterator[str]] = {}
    create, step, score = RemoteEnvironments.create, RemoteEnvironments.step, RemoteRewards.score

    async def create_with_actions(this: RemoteEnvironments, rollout_id: str, task: Task) -> list[Message]:
        spec, solution = parse_spec(task.payload), tasks[task.task_id].hidden["solution"]
        actions[rollout_id] = solution_actions(spec, solution, Form.multi_turn, has_bench=True)
        return await create(this, rollout_id, task)

    async def step_with_action(this: RemoteEnvironments, rollout_id: str, action: str) -> EnvironmentReply:
        return await step(this, rollout_id, next(actions[rollout_id], action))

    async def score_solution(this: RemoteRewards, task: Task, rollout: Rollout) -> Rollout:
        # Equal answers of a group would be judged once.
        artifact = {"files": task.hidden["solution"], "played_by": rollout.rollout_id}
        return await score(this, task, replace(rollout, artifact=artifact))

    RemoteEnvironments.create, RemoteEnvironments.step = create_with_actions, step_with_action
    RemoteRewards.score = score_solution


async def watched(run: Run, watch: Watch, deadline: float) -> dict[str, Any]:
    """Train with a watch on what is in flight, and on the CPU seconds of those who judge.

    Args:
        run: Open, not begun.
        watch: Counts what is in flight.
        deadline: On the monotonic clock; what is left then is not played, and the figures are those of whole steps.
    """
    watch.num_engines = run.engines.size
    run.rollout_phase = partial(watch.phase, run.rollout_phase)
    watch.roots = lambda: {
        group.role: {identity["pid"] for identity in group.identities.values()}
        for group in run.topology.groups
        if group.role in JUDGES
    }
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(deadline - time.monotonic()):
            await train(run)
    watch.cpu_s.append(cpu_seconds(watch.roots()))
    steps = [json.loads(line) for line in (run.folder / "metrics.jsonl").open()]
    if not steps:
        raise RuntimeError("A step must end before the limit. Raise --limit-s, or lower --tasks.")
    shares = [wait / (watch.num_engines * step["time/step_s"]) for wait, step in zip(watch.waits, steps, strict=False)]
    used, waits = watch.cpu_s[len(steps)], watch.waits[: len(steps)]
    measured = slice(1, len(steps)) if len(steps) > 1 else slice(1)
    seconds = sum(step["time/step_s"] for step in steps[measured])
    before, cores = watch.cpu_s[measured][0], look().cpu.num_cores
    keys = ("turns/mean", "score_s/mean", "score_s/max", "environment_s/mean", "generate_s/mean", "num_valid")
    return {
        "share": sum(waits[measured]) / (watch.num_engines * seconds),
        "cpu_share": {role: (used[role] - before[role]) / (seconds * cores) for role in used},
        "cores": cores,
        "share_by_step": shares,
        "engine_seconds": dict(watch.seconds),
        "account": account(steps[measured]),
        "rollouts": [{key: step[f"rollout/{key}"] for key in keys} for step in steps],
        "validator_failures": [step.get("rollout/validator_failure/count", 0.0) for step in steps],
    }


def measure(folder: Path, options: argparse.Namespace, overrides: list[str]) -> dict[str, Any]:
    """Play and train."""
    chosen = [
        *layout(num_gpus=options.gpus, is_apart=options.apart),
        f"trainer.staleness={int(options.apart)}",
        f"model.path={options.model}",
        "environment=nat_agent_multi_turn",
        f"environment.train_files=['{TASKS}']",
        "environment.validation_files=['builtin:nat_agent/library_validation']",
        f"cluster.num_environment_workers={options.workers}",
        f"cluster.num_reward_workers={options.workers}",
        f"trainer.steps={options.steps}",
        f"trainer.tasks_per_step={options.tasks}",
        f"trainer.rollouts_per_task={options.rollouts}",
        "trainer.micro_batch_tokens=16384",
        "rollout.max_turns=10",
        "rollout.max_new_tokens=512",
        "rollout.max_total_tokens=6144",
        "name=validators",
        f"root_dir={folder}",
        *QUIET,
        *overrides,
    ]
    if not options.as_played:
        play_solutions()
    watch, deadline = Watch(), time.monotonic() + options.limit_s - GRACE_S
    watch.count_all()
    return {**in_open_run(chosen, lambda run: watched(run, watch, deadline), options.limit_s), "overrides": chosen}


def main() -> int:
    """Measure and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--bar", choices=("P8", "I5"), default="P8")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--apart", action="store_true", help="engines on cards of their own, one batch ahead")
    parser.add_argument("--workers", type=int, default=8, help="environment workers, and as many reward workers")
    parser.add_argument("--as-played", action="store_true", help="judge what the policy says, not the solutions")
    parser.add_argument("--limit-s", type=float, default=400)
    options, overrides = parse(parser)
    with tempfile.TemporaryDirectory() as folder:
        raw = attempt("validators", lambda: measure(Path(folder), options, overrides))
    value = raw.get("share")
    unit = "engine time waiting for validators and sandboxes / step time"
    is_met = value is not None and value <= TARGET
    write_result(options.output, options.bar, value, unit, TARGET, is_met=is_met, raw=raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())

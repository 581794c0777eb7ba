"""Runs a chain of cells: starts the run, waits for each fault and for what comes of it, starts the run anew."""

import contextlib
import dataclasses
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import family
from chaos.armed import EVENTS, FOLDER
from chaos.cells import BLOCK, GOES_ON, RESUME_S, Cell, Chain
from chaos.damage import DAMAGES
from chaos.places import disk_of, several_nodes
from chaos.strikes import BALLAST, STRIKES
from letter_family import write_letter_tasks
from small_run import TINY, environment

from skyrl_nat.config.recovery import ENDING_S

PROGRAM = Path(__file__).parent / "program.py"
TOTAL_STEPS = 400
"""Of the schedule: more than any chain has."""
GRACE_S = 20
SETTINGS = (
    f"trainer.steps={TOTAL_STEPS}",
    "checkpoint.every_steps=2",
    "checkpoint.keep_last=4",
    "evaluation.every_steps=2",
    "evaluation.before_and_after=false",
    "engine.deterministic=true",
    "optimizer.schedule=cosine",
    "optimizer.warmup_steps=2",
    "recovery.probe_timeout_s=2",
    "recovery.stall_timeout_s=120",
    f"recovery.grace_s={GRACE_S}",
    "cluster.call_timeout_s=30",
    "cluster.start_timeout_s=60",
    # On a busy machine, threads that wait for each other in a spin take most of the time.
    "cluster.num_threads=1",
    "trainer.rollouts_per_task=2",
    "rollout.max_new_tokens=8",
    "engine.request_timeout_s=20",
    "rollout.rollout_timeout_s=40",
    "weight_sync.timeout_s=20",
    # The deadline of a validation is a dozen of these.
    "environment.sandbox.job_timeout_s=0.5",
)
LOOK_S = 0.05
GONE_S = 40.0
"""Until nothing is left of a run that has ended."""


@dataclass(slots=True)
class Result:
    """What came of a cell."""

    chain: str
    cell: Cell
    outcome: str = "never came"
    seconds: float = 0.0
    """From the fault until the run trained again, or had ended."""
    resumed_s: float = 0.0
    """From a new start until the run trained again; 0 where it had not ended."""
    complaints: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """Return `ok`, or what was wrong."""
        return "; ".join(self.complaints) or "ok"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data."""
        return {
            "cell": self.cell.name,
            "chain": self.chain,
            "outcome": self.outcome,
            "seconds": round(self.seconds, 1),
            "deadline_s": self.cell.deadline_s,
            "resumed_s": round(self.resumed_s, 1),
            "verdict": self.verdict,
        }


class ChainRun:
    """One chain in a work folder."""

    def __init__(self, chain: Chain, work: Path, program: Path = PROGRAM) -> None:
        self.chain = chain
        self.folder = work / chain.name
        self._run = self.folder / "runs" / chain.name
        self._faults = work / f"{chain.name}.faults"
        self._work = work
        self._program = program
        self._launches = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._nodes: Any = None
        self._way: dict[str, str] = {}
        """To the nodes, for the run's environment."""
        self._is_cut_off = False
        self.results = [Result(chain.name, cell) for cell in chain.cells]
        self.complaints: list[str] = []
        """About the end of the whole run."""

    def play(self, report: Callable[[Result], None] = lambda result: None, num_steps: int = 0) -> Path:
        """Go through all cells and end the run in order; return a copy of what the judge reads.

        Args:
            report: Gets each result when its outcome is known; the judge comes later.
            num_steps: That the run must have at least.
        """
        self._faults.mkdir(parents=True)
        with disk_of(self.folder, self.chain.small_disk_mib), several_nodes(self.chain, self._faults) as place:
            self._nodes, self._way = place
            try:
                for number, result in enumerate(self.results):
                    self._play_cell(number, result)
                    report(result)
                if self._process is None:
                    self._start(len(self.results))
                # The next one begins when everything of the last one is done, its evaluation, too.
                self._wait_for_step(max(self.chain.num_steps, num_steps) + 1, RESUME_S)
                self.complaints += self._end_in_order()
            finally:
                self._kill_all()
                family.remove_memory_groups()
            keep_record(self._run, self._faults / "run")
        return self._faults / "run"

    def cut_off(self) -> None:
        """Let a run that another thread plays end at once, and no other one start."""
        self._is_cut_off = True
        self._kill_all()

    def _play_cell(self, number: int, result: Result) -> None:
        """Wait for the fault and for its end; a run that is not what it should be is started anew for the next cell."""
        cell = result.cell
        if number and any(
            event["what"] == "ill" and event["step"] == self.chain.first_step(number) for event in self._events()
        ):
            self.results[number - 1].complaints.append("a worker was not replaced in time")
        if self._process is None and not self._start(number):
            result.complaints.append("the run did not start again")
            return
        if self._nodes and number:
            # In the place of the one that the last fault took.
            self._nodes.start(f"n{number}", 1)
        if cell.victim == "policy's node":
            # Workers of it have nowhere else to go.
            self._nodes.start(f"s{number}", 1)
        fired = self._wait_for_fault(number)
        if fired is None:
            result.complaints.append(f"the fault was not made: {self._last_words()}")
            self._kill_all()
            return
        # One step is trained after the fault; a run that is to end has its whole block for that.
        until = self.chain.first_step(number) + (3 if cell.expects == GOES_ON else BLOCK)
        is_settled = self._wait_for_step(until, cell.deadline_s - (now() - fired))
        result.seconds = now() - fired
        self._name_outcome(result, is_settled)
        if not self._was_made(cell, fired):
            result.complaints.append(f"the fault was armed and never made: {self._last_words()}")
        if self._process is None:
            self._go_on(number, result)

    def _go_on(self, number: int, result: Result) -> None:
        """Start a run that has ended anew, with a damaged checkpoint if the cell says so."""
        self._damage(result.cell, result)
        started = now()
        if self._start(number + 1) and self._wait_for_step(self.chain.first_step(number) + 3, RESUME_S):
            result.resumed_s = now() - started
        else:
            result.complaints.append(f"the run did not go on after a new start: {self._last_words()}")
            self._kill_all()
        if result.cell.damage and "is damaged and skipped" not in self._output():
            result.complaints.append("nobody was told of the damaged checkpoint")

    def _was_made(self, cell: Cell, fired: float) -> bool:
        """Return whether a fault struck: workers and trackers say so themselves."""
        later = [event for event in self._events() if event["at"] >= fired]
        if cell.fault == "tracker down":
            return any(event["what"] == "tracker" and event["pids"] for event in later)
        made = [event for event in later if event["what"] == "struck" and event["fault"] == cell.fault]
        return cell.fault in STRIKES or len(made) > 0

    def _name_outcome(self, result: Result, is_settled: bool) -> None:
        cell = result.cell
        code = None if self._process is None else self._process.poll()
        if is_settled:
            result.outcome = GOES_ON
            if cell.expects != GOES_ON:
                result.complaints.append("the run must end, it went on")
            return
        if code is None:
            result.outcome = "hangs"
            result.complaints.append(f"neither trained nor ended within {cell.deadline_s:g} s")
            self._kill_all()
            return
        output = self._output()
        errors = re.findall(r"^skyrl-nat: .*", output, re.MULTILINE)
        result.outcome = f"ended with {code}" + (f": {errors[-1][11:90]}" if errors else "")
        if cell.expects == GOES_ON:
            result.complaints.append(f"the run must go on: {self._last_words()}")
        else:
            result.complaints += complaints_of_end(cell.expects, code, errors, output)
        result.complaints += self._leftovers()
        self._process = None

    def _start(self, first: int) -> bool:
        """Start the run, or go on with it, with the cells from a number on; return whether its process lives."""
        if self._is_cut_off:
            raise AssertionError("the matrix was cut off")
        plan = self._faults / "plan.json"
        cells = list(enumerate(self.chain.cells))[first:]
        entries = [
            {"number": number, "step": self.chain.first_step(number) + cell.offset, "cell": dataclasses.asdict(cell)}
            for number, cell in cells
        ]
        plan.write_text(json.dumps(entries))
        arguments = [
            f"name={self.chain.name}",
            f"root_dir={self.folder / 'runs'}",
            *task_overrides(self._work),
            *SETTINGS,
            *self.chain.overrides,
            "resume=latest",
        ]
        self._launches += 1
        with (self._faults / f"output_{self._launches}.txt").open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(self._program), str(plan), "train", *arguments],
                env={**environment(), **self._way, FOLDER: str(self._faults)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return self._process.poll() is None

    def _end_in_order(self) -> list[str]:
        """Stop the run as a user would; return what is wrong with that."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S + ENDING_S)
        # A run that does not end in time ends itself, with this sentence.
        is_in_order = self._process.poll() == 130 and "told to stop must end within" not in self._last_words()
        if self._nodes:
            self._nodes.close()
        found = [] if is_in_order else [f"the run must end in order after its last cell: {self._last_words()}"]
        return found + self._leftovers()

    def _wait_for_fault(self, number: int) -> float | None:
        """Return when the fault was made; None if the run ends or moves on without it."""
        deadline = now() + RESUME_S
        while now() < deadline:
            fired = [event for event in self._events() if event["what"] == "fired" and event["cell"] == number]
            if fired:
                return fired[0]["at"]
            if self._process is None or self._process.poll() is not None or self._last_step() > self._end_of(number):
                return None
            time.sleep(LOOK_S)
        return None

    def _wait_for_step(self, step: int, timeout_s: float) -> bool:
        """Return whether the run trains a step before it ends, within the time."""
        deadline = now() + timeout_s
        while now() < deadline:
            if self._last_step() >= step:
                return True
            if self._process is None or self._process.poll() is not None:
                return self._last_step() >= step
            time.sleep(LOOK_S)
        return False

    def _end_of(self, number: int) -> int:
        return self.chain.first_step(number) + BLOCK

    def _last_step(self) -> int:
        steps = [entry["step"] for entry in read_lines(self._run / "metrics.jsonl") if "loss/policy" in entry]
        return steps[-1] if steps else 0

    def _events(self) -> list[dict[str, Any]]:
        return read_lines(self._faults / EVENTS)

    def _output(self) -> str:
        return (self._faults / f"output_{self._launches}.txt").read_text(errors="replace")

    def _last_words(self) -> str:
        lines = self._output().strip().splitlines() if self._launches else []
        return lines[-1][:300] if lines else "no output"

    def _damage(self, cell: Cell, result: Result) -> None:
        """Do to the newest checkpoint what the cell says, and make room on a full disk."""
        (self.folder / BALLAST).unlink(missing_ok=True)
        if cell.damage:
            newest = sorted(path for path in (self._run / "checkpoints").glob("step_*") if not path.suffix)[-1]
            DAMAGES[cell.damage](newest)
            result.outcome += f"; {newest.name} damaged"

    def _leftovers(self) -> list[str]:
        """Wait until no process of the run is left; return what is."""
        deadline = now() + GONE_S
        while left := processes_of(self._faults):
            if now() > deadline:
                names = ", ".join(sorted(left.values()))
                self._kill_all()
                return [f"processes are left behind: {names}"]
            time.sleep(LOOK_S)
        return []

    def _kill_all(self) -> None:
        self._process = None
        for pid in processes_of(self._faults):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def complaints_of_end(expects: tuple[int, str] | str, code: int, errors: list[str], output: str) -> list[str]:
    """Return what is wrong with how a run ended.

    Args:
        expects: Exit code, and pattern of the only line of error (none where it is empty).
        code: Exit code.
        errors: Lines of error.
        output: Everything that was printed.
    """
    assert not isinstance(expects, str)
    found = []
    if code != expects[0]:
        found.append(f"the exit code must be {expects[0]}, found {code}")
    if len(errors) != bool(expects[1]) or not all(re.search(expects[1], line) for line in errors):
        found.append(f"one line must say `{expects[1]}`, found {errors or output[-200:]}")
    if "Traceback" in output:
        found.append("a traceback was printed")
    return found


def now() -> float:
    """Return the time of the clock that events carry."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


@functools.cache
def task_overrides(work: Path) -> list[str]:
    """Return the overrides that name model and tasks; both are made once, before chains are played at once."""
    from tiny_model import make_tiny_model  # torch: only here

    make_tiny_model(work / "model", hidden_size=64)
    return [f"model.path={work / 'model'}", *write_letter_tasks(work, family.NAME), *TINY]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a file that may be growing or not there."""
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def keep_record(run: Path, target: Path) -> None:
    """Copy what the judge reads."""
    shutil.copytree(run, target, ignore=shutil.ignore_patterns("checkpoints", "wandb", "tensorboard"))


def processes_of(faults: Path) -> dict[int, str]:
    """Return the living processes that were started for a chain: id -> name."""
    mark, found = f"{FOLDER}={faults}".encode(), {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "comm").read_text().strip()
    return found


def only(chain: Chain, keeps: Callable[[Cell], bool]) -> Chain:
    """Return a chain of the cells for which `keeps` is true."""
    return dataclasses.replace(chain, cells=tuple(cell for cell in chain.cells if keeps(cell)))

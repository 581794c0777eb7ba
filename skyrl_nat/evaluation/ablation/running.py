"""Training the runs of an ablation, one process after the other; what ended well is not started again."""

import ctypes
import fcntl
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from skyrl_nat.config.recovery import STOP_SIGNALS
from skyrl_nat.errors import ConfigError
from skyrl_nat.evaluation.ablation.sweep import PlannedRun, Sweep
from skyrl_nat.evaluation.folder import read_json, write_json
from skyrl_nat.json_lines import append_lines, encode_line, mend_lines, open_lines

ASKED = "ablation.json"
"""File of the folder: variants, seeds and overrides."""
ENDED = "ended.jsonl"
"""File of the folder: one line for each process that ended."""
LOCK = ".lock"
PROGRAM = (sys.executable, "-m", "skyrl_nat.cli", "train")
MAX_LINE_LETTERS = 300
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A process that trained a run and ended."""

    run: str
    exit_code: int
    """Minus the signal's number where one killed it."""
    seconds: float
    last_line: str
    """Of what it printed, cut; empty of none."""


class Processes:
    """Plays runs; a signal to stop is passed on to the one that is playing."""

    def __init__(self, folder: Path, lock: BinaryIO, say: Callable[[str], None], program: Sequence[str]) -> None:
        """Prepare.

        Args:
            folder: Of the ablation, held by `lock`, which each process inherits: one that outlives us holds it too.
            lock: From `opened`.
            say: Gets lines of progress.
            program: What trains, without overrides.
        """
        self._folder = folder
        self._lock = lock
        self._say = say
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._signal: int | None = None

    def play(self, runs: Sequence[PlannedRun]) -> list[Ended]:
        """Train what has not ended well yet; return how those ended that failed now.

        Raises:
            KeyboardInterrupt: A signal said so, and the run that was playing has ended.
        """
        done, failed = _ended_well(self._folder), []
        before = {number: signal.signal(number, self._stop) for number in STOP_SIGNALS}
        try:
            for number, run in enumerate(runs, 1):
                place = f"{number} of {len(runs)}: {run.name}"
                if run.name in done:
                    self._say(f"{place} was trained before")
                    continue
                self._say(f"{place} is training, see {self._log(run)}")
                ended = self._train(run)
                with open_lines(self._folder / ENDED) as file:
                    append_lines(file, encode_line(asdict(ended)))
                self._say(f"{place} {'ended' if ended.exit_code == 0 else 'failed'} after {ended.seconds:.0f} s")
                failed += [ended] if ended.exit_code else []
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return failed

    def _train(self, run: PlannedRun) -> Ended:
        started, log = time.monotonic(), self._log(run)
        with log.open("ab") as output:
            begin = output.tell()
            if self._signal is None:
                self._process = subprocess.Popen(
                    [*self._program, *run.overrides],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=(self._lock.fileno(),),
                    # Not also the terminal's signals, which are passed on.
                    start_new_session=True,
                    preexec_fn=_end_with_parent,
                )
                if self._signal is not None:
                    self._process.send_signal(self._signal)
                self._process.wait()
        if self._signal is not None or self._process is None:
            raise KeyboardInterrupt
        last_line = _last_line(log, begin)
        return Ended(
            run=run.name,
            exit_code=self._process.returncode,
            seconds=round(time.monotonic() - started, 3),
            last_line=last_line,
        )

    def _stop(self, number: int, _: FrameType | None) -> None:
        self._signal = number
        if self._process is not None:
            self._process.send_signal(number)

    def _log(self, run: PlannedRun) -> Path:
        return self._folder / f"{run.name}.log"


@contextmanager
def opened(folder: Path, sweep: Sweep) -> Iterator[BinaryIO]:
    """Hold the folder of an ablation, which is made or gone on with; yields the file that is locked.

    Raises:
        ConfigError: It holds something else or another ablation, or somebody else holds it.
    """
    asked, found = sweep.to_dict(), read_json(folder / ASKED)
    if found is None and (folder.is_file() or (folder.is_dir() and any(folder.iterdir()))):
        raise ConfigError(f"FOLDER must be new or that of an ablation, {folder} holds neither. Name another")
    if found is not None and found != asked:
        unlike = [
            f"{key} {found.get(key)} there and {asked.get(key)} now" for key in asked if found.get(key) != asked[key]
        ]
        raise ConfigError(f"FOLDER must be that of the same ablation, {folder} has {'; '.join(unlike)}. Name another")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"One ablation at a time may hold {folder}, another one does, or a run that it left and that is just "
                "ending. Wait for it"
            ) from error
        write_json(folder / ASKED, asked)
        yield lock


def _ended_well(folder: Path) -> set[str]:
    with open_lines(folder / ENDED) as file:
        lines = [json.loads(line) for line in mend_lines(file, folder / ENDED)]
    return {line["run"] for line in lines if line["exit_code"] == 0 and (folder / line["run"]).is_dir()}


def _last_line(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip()[:MAX_LINE_LETTERS] for line in reversed(lines) if line.strip()), "")


def _end_with_parent() -> None:
    """Let the kernel tell this process to stop when the one that started it is gone, however that happens."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

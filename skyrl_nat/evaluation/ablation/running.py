"""Training the runs of an ablation, each a process, some at once; what ended well is not started again."""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
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
CARDS = "CUDA_VISIBLE_DEVICES"
LOOK_S = 0.1
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Playing:
    """A process under way."""

    run: PlannedRun
    place: str
    """For people: which of all it is."""
    card: int
    process: subprocess.Popen[bytes]
    started: float
    begin: int
    """Where its output begins in its log."""


class Processes:
    """Plays runs; a signal to stop is passed on to those that are playing."""

    def __init__(
        self,
        folder: Path,
        lock: BinaryIO,
        say: Callable[[str], None],
        program: Sequence[str],
        *,
        num_at_once: int = 1,
    ) -> None:
        """Prepare.

        Args:
            folder: Of the ablation, held by `lock`, which each process inherits: one that outlives us holds it too.
            lock: From `opened`.
            say: Gets lines of progress.
            program: What trains, without overrides.
            num_at_once: Runs that play beside each other; with several each sees one GPU, as far as there are any.
        """
        self._folder = folder
        self._lock = lock
        self._say = say
        self._program = program
        self._num_at_once = num_at_once
        self._playing: list[_Playing] = []
        self._signal: int | None = None

    def play(self, runs: Sequence[PlannedRun]) -> list[Ended]:
        """Train what has not ended well yet; return how those ended that failed now.

        Raises:
            KeyboardInterrupt: A signal said so, and the runs that were playing have ended.
        """
        done, failed = _ended_well(self._folder), list[Ended]()
        waiting = deque[tuple[str, PlannedRun]]()
        for number, run in enumerate(runs, 1):
            waiting.append((f"{number} of {len(runs)}: {run.name}", run))
        before = {number: signal.signal(number, self._stop) for number in STOP_SIGNALS}
        try:
            while waiting or self._playing:
                while waiting and len(self._playing) < self._num_at_once and self._signal is None:
                    place, run = waiting.popleft()
                    if run.name in done:
                        self._say(f"{place} was trained before")
                    else:
                        self._start(place, run)
                failed += [ended for ended in self._ended() if ended.exit_code]
                if self._signal is not None and not self._playing:
                    raise KeyboardInterrupt
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return failed

    def _start(self, place: str, run: PlannedRun) -> None:
        log = self._log(run)
        self._say(f"{place} is training, see {log}")
        taken = {playing.card for playing in self._playing}
        card = next(number for number in range(self._num_at_once) if number not in taken)
        with log.open("ab") as output:
            begin = output.tell()
            process = subprocess.Popen(
                [*self._program, *run.overrides],
                env=os.environ | (one_card(card) if self._num_at_once > 1 else {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(self._lock.fileno(),),
                # Not also the terminal's signals, which are passed on.
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        started = time.monotonic()
        self._playing.append(_Playing(run=run, place=place, card=card, process=process, started=started, begin=begin))
        if self._signal is not None:
            process.send_signal(self._signal)

    def _ended(self) -> list[Ended]:
        """Return the runs that have ended; those that a signal ended are not written down."""
        over = [playing for playing in self._playing if playing.process.poll() is not None]
        if not over:
            time.sleep(LOOK_S if self._playing else 0.0)
            return []
        self._playing = [playing for playing in self._playing if playing not in over]
        return [] if self._signal is not None else [self._written(playing) for playing in over]

    def _written(self, playing: _Playing) -> Ended:
        ended = Ended(
            run=playing.run.name,
            exit_code=playing.process.returncode,
            seconds=round(time.monotonic() - playing.started, 3),
            last_line=_last_line(self._log(playing.run), playing.begin),
        )
        with open_lines(self._folder / ENDED) as file:
            append_lines(file, encode_line(asdict(ended)))
        self._say(f"{playing.place} {'ended' if ended.exit_code == 0 else 'failed'} after {ended.seconds:.0f} s")
        return ended

    def _stop(self, number: int, _: FrameType | None) -> None:
        self._signal = number
        for playing in self._playing:
            playing.process.send_signal(number)

    def _log(self, run: PlannedRun) -> Path:
        return self._folder / f"{run.name}.log"


def one_card(number: int) -> dict[str, str]:
    """Return the environment variables that leave a process one of the GPUs that this one may use; {} without GPUs."""
    named = os.environ.get(CARDS)
    if named is None and shutil.which("nvidia-smi") is not None:
        found = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False).stdout
        named = ",".join(str(place) for place in range(found.count("GPU ")))
    cards = [card for card in (named or "").split(",") if card]
    return {CARDS: cards[number % len(cards)]} if cards else {}


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

"""Tasks that fail every time: they are put aside, listed, and played no more."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from skyrl_nat.json_lines import encode_line, replace_lines

LONGEST_REASON = 500
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Groups of one task that were lost in a row."""

    failures: int
    step: int
    """That the last one was played for."""
    reason: str
    """Of the last one."""


class Quarantine:
    """Counts the groups of each task that were lost in a row; with too many a task is in quarantine.

    It depends on nothing but what it was told, in order; its state goes into checkpoints. A resumed run with a higher
    bound lets tasks out, one with 0 all of them.
    """

    def __init__(self, after: int, *, file: Path | None = None, warn: Callable[[str], None] = _logger.warning) -> None:
        """Begin with no task in it.

        Args:
            after: Groups lost in a row that put a task aside; 0 puts none aside.
            file: Where they are listed, one JSON line each; None lists them nowhere.
            warn: Tells the user.
        """
        self.after = after
        self._file = file
        self._warn = warn
        self._lost: dict[str, Failures] = {}

    def __contains__(self, task_id: str) -> bool:
        """Return whether a task is to be left out."""
        return task_id in self._lost and 0 < self.after <= self._lost[task_id].failures

    def __len__(self) -> int:
        """Return the number of tasks that are left out."""
        return sum(task_id in self for task_id in self._lost)

    def fail(self, task_id: str, reason: str, step: int) -> None:
        """Say that a group of a task was lost: engine, worker, sandbox or validator failed, whatever was tried."""
        if not self.after:
            return
        before = self._lost[task_id].failures if task_id in self._lost else 0
        self._lost[task_id] = Failures(failures=before + 1, step=step, reason=reason[:LONGEST_REASON])
        if task_id in self:
            self.write()
            self._warn(f"task {task_id} is played no more, {before + 1} groups of it were lost in a row: {reason}")

    def clear(self, task_id: str) -> None:
        """Say that a group of a task was judged: what was lost before does not count any more."""
        self._lost.pop(task_id, None)

    def write(self) -> None:
        """Bring the file up to date, if the disk lets it; checkpoints hold the list as well."""
        if self._file is None or not (len(self) or self._file.exists()):
            return
        listed = [{"task_id": name, **asdict(lost)} for name, lost in self._lost.items() if name in self]
        try:
            replace_lines(self._file, [encode_line(line).rstrip(b"\n") for line in listed])
        except OSError as error:
            self._warn(f"{self._file} could not be written and lists what was played no more before: {error}")

    def state(self) -> dict[str, dict[str, Any]]:
        """Return all that `restore` needs, as JSON data."""
        return {name: asdict(lost) for name, lost in self._lost.items()}

    def restore(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on from a state; without a bound there is nothing to remember."""
        self._lost = {name: Failures(**lost) for name, lost in state.items()} if self.after else {}

"""Everything that is wrong with task files, gathered for one message."""

from skyrl_nat.errors import DataError

MAX_LISTED = 5
"""Rows that are shown of one file; all are counted."""


class RowFaults:
    """Rows of one file that are no tasks: all are counted, the first few kept."""

    def __init__(self) -> None:
        """Start at none."""
        self.count = 0
        self._first: list[str] = []

    def add(self, row: int, problem: str) -> None:
        """Note a row, counted from 0, and what is wrong with it."""
        self.count += 1
        if self.count <= MAX_LISTED:
            self._first.append(f"row {row}, {problem}")

    def describe(self, name: str) -> str:
        """Return the lines that say it, the file first."""
        shown = "" if self.count <= MAX_LISTED else f", the first {MAX_LISTED} of them"
        return "\n  ".join([f"{name}: {self.count} bad rows{shown}:", *self._first])


class FileFaults:
    """Files that cannot be used."""

    def __init__(self) -> None:
        """Start at none."""
        self.num_files = 0
        """That were looked at, the good ones included."""
        self._files: dict[str, list[str]] = {}

    def add(self, name: str, line: str) -> None:
        """Note what is wrong with a file; it may be named again."""
        self._files.setdefault(name, []).append(line)

    def check(self) -> None:
        """Pass where nothing was noted.

        Raises:
            DataError: With all that was.
        """
        if self._files:
            lines = [line for lines in self._files.values() for line in lines]
            raise DataError(
                f"Every task file must be readable and each of its rows a task, {len(self._files)} of "
                f"{self.num_files} files are not. Mend or leave out:\n" + "\n".join(lines)
            )

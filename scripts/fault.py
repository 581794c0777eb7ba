"""One deliberate fault: a string of a file that must occur there exactly once, and what it is replaced with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One deliberate fault."""

    path: str
    """Below `skyrl_nat`; empty for no fault at all."""
    tests: tuple[str, ...]
    """Test files below `tests/unit` that should notice."""
    name: str
    old: str
    new: str


def in_file(path: str, tests: str, *faults: tuple[str, str, str]) -> list[Fault]:
    """Return faults of one file as `(name, old, new)` that the same test files, split by blanks, should notice."""
    return [Fault(path, tuple(tests.split()), *fault) for fault in faults]

"""One row of the attack table, and ways to judge what came back."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass

from skyrl_nat.sandbox.base import SandboxResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One row of the table."""

    must_not: str
    """What may not happen."""
    code: str = ""
    """Body of a function of the host's facts `a`; whatever true it returns is a breach."""
    command: str = ""
    """A shell command instead, with `{secret}` and the like filled in."""
    judge: Callable[[SandboxResult], str] | None = None
    """Looks at the result of either; returns what is wrong."""
    look: str = ""
    """Body of a second job of the same server: what it returns is a breach too."""
    timeout_s: float = 4.0


def ended(*ends: str) -> Callable[[SandboxResult], str]:
    """Return a judge: the job must have ended so."""

    def judge(result: SandboxResult) -> str:
        end = result.output.get("end", result.status)
        return "" if end in ends else f"ended as {end}, not as {' or '.join(ends)}"

    return judge


def only_reports(result: SandboxResult) -> str:
    """Judge: the answer has the shape that the job's first process gives it."""
    try:
        json.dumps(result.output, allow_nan=False)
    except ValueError:
        return "a number that is none came back"
    if result.status == "done" and set(result.output) != {"reports", "end"}:
        return f"a forged answer came back: {str(result.output)[:200]}"
    return "" if math.isfinite(result.wall_s) else "a forged time came back"


def files(*allowed: str) -> Callable[[SandboxResult], str]:
    """Return a judge: no other files may have been collected."""

    def judge(result: SandboxResult) -> str:
        extra = set(result.output.get("files", {})) - set(allowed)
        return f"collected {sorted(extra)[:5]}" if extra else ""

    return judge


def cut(result: SandboxResult) -> str:
    """Judge: little text came back."""
    size = len(result.output.get("output", "")) + len(result.log)
    return f"{size} characters came back" if size > 21_000 else ""


def calls(**calls: str) -> str:
    """Return code that makes system calls and returns the names of those that worked."""
    rows = ", ".join(f"{name!r}: lambda: {call}" for name, call in calls.items())
    return f"calls = {{{rows}}}\nreturn [n for n, f in calls.items() if (r := got(f)) is not None and r >= 0]"

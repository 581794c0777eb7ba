"""The workflow verifier: was the work done as the plan says, no more and no less?"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the verifier says of one episode."""

    has_no_duplicate: bool
    """No tool was used twice."""
    is_in_order: bool
    """The tools of the plan came in its order."""
    has_nothing_needless: bool
    """No tool outside of the plan was used."""
    is_complete: bool
    """Every tool of the plan was used."""
    is_final_state_right: bool
    """The work was ended, and the goal holds."""
    findings: tuple[str, ...]
    """One sentence for each of the five that does not hold."""

    @property
    def is_ok(self) -> bool:
        """True where there is nothing to object to."""
        return not self.findings


def verify(plan: Sequence[str], executed: Sequence[str], *, is_goal_reached: bool, is_ended: bool) -> Verdict:
    """Judge the tools that were used.

    Args:
        plan: Required tools in order, each once.
        executed: Tools that were used and possible, in order; refused attempts change nothing and are left out.
        is_goal_reached: Whether status and facts are those of the goal.
        is_ended: Whether the work was ended by a tool.
    """
    duplicates = list(dict.fromkeys(name for name in executed if executed.count(name) > 1))
    planned = [name for name in dict.fromkeys(executed) if name in plan]
    late = [name for name, right in zip(planned, sorted(planned, key=plan.index), strict=True) if name != right]
    needless = [name for name in dict.fromkeys(executed) if name not in plan]
    missing = [name for name in plan if name not in executed]
    faults = [
        (bool(duplicates), f"used more than once: {', '.join(duplicates)}"),
        (bool(late), f"out of order: {', '.join(late)}"),
        (bool(needless), f"not needed: {', '.join(needless)}"),
        (bool(missing), f"not used: {', '.join(missing)}"),
        (not (is_ended and is_goal_reached), "the goal does not hold" if is_ended else "the work was not ended"),
    ]
    return Verdict(
        has_no_duplicate=not duplicates,
        is_in_order=not late,
        has_nothing_needless=not needless,
        is_complete=not missing,
        is_final_state_right=is_ended and is_goal_reached,
        findings=tuple(text for is_fault, text in faults if is_fault),
    )

"""When a rollout's deadline says something about the rollout, and when about the controller."""

import asyncio

LATE_S = 5.0
"""A deadline that is noticed so late fell into a time in which the controller stood still."""


def fault_of_deadline(deadline: float | None) -> str:
    """Return why a deadline that is over is not the rollout's fault, or nothing where it is.

    Args:
        deadline: On the event loop's clock.
    """
    late_s = asyncio.get_running_loop().time() - deadline if deadline is not None else 0.0
    if late_s <= LATE_S:
        return ""
    return f"the controller stood still as the rollout's deadline passed, {late_s:.0f} s ago"

"""The time that a run has once it is told to stop: one deadline for all that it still does."""

import time

CLOSING_S = 5.0
"""For work that was cancelled to come to its end."""


class Grace:
    """A deadline that counts from the first word to stop."""

    def __init__(self, seconds: float) -> None:
        """Count nothing yet.

        Args:
            seconds: From `begin` to the deadline.
        """
        self.seconds = seconds
        self._end: float | None = None

    def begin(self) -> None:
        """Start to count; later calls change nothing."""
        if self._end is None:
            self._end = time.monotonic() + self.seconds

    @property
    def left_s(self) -> float | None:
        """Time that is left, never below 0; None as long as nothing has to end."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def closing_s(self) -> float | None:
        """As `left_s`, with the time for what was cancelled."""
        return None if self.left_s is None else self.left_s + CLOSING_S

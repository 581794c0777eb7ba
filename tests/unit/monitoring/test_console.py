"""What a user sees while a run goes on."""

import io

import pytest
from rich.console import Console

from skyrl_nat.monitoring.console import ConsoleBackend


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_warning_stays_when_the_status_moves_on(is_terminal: bool) -> None:
    """In a terminal the status is one line that is written over; a warning must not be."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=is_terminal, width=60, highlight=False, soft_wrap=True)
    with ConsoleBackend(console) as backend:
        backend.warn("ALARM at step 3: [0.5] is too much")
        backend.status("step 4 of 9: playing")
    lines = [line for line in written.getvalue().splitlines() if "ALARM" in line]
    assert len(lines) == 1
    assert "ALARM at step 3: [0.5] is too much" in lines[0]

"""One deadline for all that a run does once it is told to stop."""

import pytest

from skyrl_nat.cluster import node_starter, session, topology
from skyrl_nat.config.recovery import ENDING_S, RecoveryConfig
from skyrl_nat.controller import grace, opening
from skyrl_nat.controller.grace import CLOSING_S, Grace


def test_time_counts_from_the_first_word_and_never_falls_below_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(grace.time, "monotonic", lambda: now)
    stop = Grace(10)
    assert stop.left_s is None
    assert stop.closing_s is None
    stop.begin()
    now = 104.0
    stop.begin()
    assert stop.left_s == 6
    now = 111.0
    assert stop.left_s == 0
    assert stop.closing_s == CLOSING_S


def test_the_shares_of_the_end_fit_in_its_time() -> None:
    """Cancelled work, rollouts, workers, Ray, trackers. Of the 180 s that Slurm gives, some are left to requeue."""
    assert 2 * CLOSING_S + topology.WORKERS_S + session.END_S + opening.TRACKERS_S <= ENDING_S
    assert RecoveryConfig().grace_s + ENDING_S + node_starter.END_S <= 180

"""Shares and means of an evaluation, by hand."""

import pytest
from evaluated import group

from skyrl_nat.evaluation.figures import figures
from skyrl_nat.types import Outcome


def test_ev_08_failures_of_the_model_stay_in_the_denominator():
    """8 right, 1 wrong, 1 out of time: 0.8 of 10 is the headline, 8 of the 9 that finished stands beside it."""
    groups = [group(i, [1.0]) for i in range(8)] + [group(8, [0.0]), group(9, [0.0], Outcome.TRUNCATED)]
    found = figures(groups)
    assert (found["success"]["value"], found["success"]["n"]) == (0.8, 10)
    assert found["success_of_finished"] == {"value": pytest.approx(8 / 9), "n": 9}
    assert (found["success"]["low"], found["success"]["high"]) == (
        pytest.approx(0.4902, abs=1e-4),
        pytest.approx(0.9433, abs=1e-4),
    )


def test_a_task_without_a_verdict_is_counted_and_in_no_mean():
    found = figures([group(0, [1.0]), group(1, [0.0]), group(2, [None])])
    assert (found["success"]["value"], found["num_tasks"], found["num_without_verdict"]) == (0.5, 3, 1)
    assert found["outcomes"]["infrastructure_failure"] == 1
    assert figures([group(2, [None])])["success"]["value"] is None


def test_pass_at_k_is_the_unbiased_estimate():
    """Of 4 with 1 right: 1/4, 1 - (3 choose 2)/(4 choose 2) = 1/2, 1; of 4 with none right 0."""
    found = figures([group(0, [1.0, 0.0, 0.0, 0.0]), group(1, [0.0] * 4)])
    assert {k: one["value"] for k, one in found["pass_at_k"].items()} == {"1": 0.125, "2": 0.25, "4": 0.5}
    assert found["success"]["value"] == 0.125
    assert figures([group(0, [1.0])])["pass_at_k"] == {}


def test_every_task_counts_once_whatever_its_number_of_rollouts():
    found = figures([group(0, [1.0, 1.0, None, None]), group(1, [0.0, 0.0, 0.0, 0.0])])
    assert found["success"]["value"] == 0.5
    assert found["reward"]["value"] == 0.5
    assert list(found["pass_at_k"]) == ["1", "2"]


def test_levels_and_families_have_their_own_figures():
    found = figures([group(0, [1.0], difficulty=2), group(1, [0.0], difficulty=2), group(2, [1.0], family="g")])
    assert {name: one["success"]["value"] for name, one in found["by_difficulty"].items()} == {
        "level 1": 1.0,
        "level 2": 0.5,
    }
    assert {name: one["success"]["n"] for name, one in found["by_family"].items()} == {"f": 2, "g": 1}


def test_metrics_are_named_as_in_training():
    found = figures([group(0, [1.0]), group(1, [0.5])])
    assert found["metrics"]["rollout/reward/mean"] == 0.75
    assert found["parts"] == {"part": 0.75}

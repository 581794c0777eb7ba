"""How often a comparison calls policies different that are not, from rollouts to its verdict."""

from collections.abc import Callable

import numpy as np
import pytest
from evaluated import played

from skyrl_nat.evaluation.comparison import compare
from skyrl_nat.evaluation.measures import ComparisonSettings
from skyrl_nat.evaluation.verdict import Decision

NUM_TASKS = 40
CALLED = (Decision.better, Decision.worse)
QUICK = ComparisonSettings(num_resamples=100)

Draw = Callable[[np.random.Generator], np.ndarray]
"""Returns `[2, tasks]` rewards of two sides that no task tells apart."""


def successes(rng: np.random.Generator) -> np.ndarray:
    """Most tasks are solved by both sides or by neither; about seven of forty change."""
    solved = rng.uniform(size=NUM_TASKS) < 0.5
    return (solved ^ (rng.uniform(size=(2, NUM_TASKS)) < 0.1)).astype(float)


def five_levels(rng: np.random.Generator) -> np.ndarray:
    """0, 0.2, ..., 0.8: no success, so that the reward has the verdict."""
    return rng.binomial(4, rng.beta(1, 1, NUM_TASKS), size=(2, NUM_TASKS)) / 5


@pytest.mark.parametrize(
    ("draw", "speaks", "num_draws"), [(successes, "success_verdict", 300), (five_levels, "reward_verdict", 900)]
)
def test_policies_that_do_not_differ_are_seldom_called_different(draw: Draw, speaks: str, num_draws: int) -> None:
    """At 0.05; the verdict is that of the measure that speaks."""
    rng, num_called = np.random.default_rng(20), 0
    for _ in range(num_draws):
        before, after = (
            [played(f"t{index:02d}", reward, parts={}) for index, reward in enumerate(rewards)]
            for rewards in draw(rng).tolist()
        )
        found = compare(before, after, settings=QUICK)
        assert found.verdict.decision is getattr(found, speaks).decision
        num_called += found.verdict.decision in CALLED
    assert num_called / num_draws <= 0.06

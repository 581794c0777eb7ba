"""One quantity of a comparison: its means, its difference, and whether that may be chance.

Success is tested with the exact sign test (McNemar's, with one rollout a task), rewards and their parts with the
signed-rank test or the paired t-test. Intervals are over tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from skyrl_nat.errors import ConfigError
from skyrl_nat.evaluation.paired_shares import success_interval
from skyrl_nat.evaluation.paired_tests import (
    PairedTest,
    holm,
    paired_t_test,
    sign_test,
    signed_rank_test,
)
from skyrl_nat.evaluation.statistics import (
    DECIMALS,
    Interval,
    bootstrap_interval,
    cohens_dz,
    mean,
    minimum_detectable_difference,
    needed_pairs,
    paired_bootstrap_interval,
    spread_of,
    wilson_interval,
)


class RewardTest(StrEnum):
    """How rewards are tested."""

    signed_rank = "signed_rank"
    """Wilcoxon; for rewards of any shape."""
    paired_t = "paired_t"
    """Student; for many tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSettings:
    """What is fixed before the results are seen."""

    alpha: float = 0.05
    """Two-sided level of the tests; intervals have a confidence of 1 - alpha. In (0, 1)."""
    power: float = 0.8
    """Chance with which the minimum detectable difference is found, in [0.5, 1)."""
    num_resamples: int = 10_000
    """Draws of a bootstrap, at least 100."""
    seed: int = 0
    """Of the bootstrap's draws, at least 0."""
    reward_test: RewardTest = RewardTest.signed_rank
    max_unmatched_share: float = 0.1
    """Most tasks that one side lacks or that are given more than once, as a share of all; in [0, 1]."""
    max_lost_gap: float = 0.1
    """Largest difference of the shares of rollouts that infrastructure or validator lost; in [0, 1]."""

    @property
    def confidence(self) -> float:
        """Of all intervals."""
        return 1 - self.alpha

    def __post_init__(self) -> None:
        checks = {
            "alpha": (0 < self.alpha < 1, "in (0, 1)"),
            "power": (0.5 <= self.power < 1, "in [0.5, 1)"),
            "num_resamples": (self.num_resamples >= 100, "at least 100"),
            "seed": (self.seed >= 0, "at least 0"),
            "max_unmatched_share": (0 <= self.max_unmatched_share <= 1, "in [0, 1]"),
            "max_lost_gap": (0 <= self.max_lost_gap <= 1, "in [0, 1]"),
        }
        for name, (is_ok, must) in checks.items():
            if not is_ok:
                raise ConfigError(f"{name} of a comparison must be {must}, got {getattr(self, name)}. Change it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """One quantity, read on every task that both sides have it for."""

    name: str
    before: list[float]
    after: list[float]
    is_share: bool = False
    """True for success: tested by signs, told in percentage points."""

    @property
    def differences(self) -> list[float]:
        """After minus before, without the residue of floating point."""
        return [round(after - before, DECIMALS) + 0.0 for before, after in zip(self.before, self.after, strict=True)]

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest value possible: 0 and 1, or what lies beyond."""
        return min(0.0, *self.before, *self.after), max(1.0, *self.before, *self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One quantity compared; values are in its own unit, shares in [0, 1]."""

    name: str
    is_share: bool
    num_tasks: int
    before: float
    """Mean over tasks."""
    after: float
    before_interval: Interval
    after_interval: Interval
    difference: float
    """Mean of after minus before."""
    interval: Interval
    """Of the difference."""
    num_wins: int
    """Tasks that rose."""
    num_losses: int
    num_ties: int
    effect_size: float | None
    """Cohen's d_z; None where all differences are equal."""
    minimum_detectable: float | None
    """Difference that so many tasks show with the power set; None where all differences are equal."""
    num_tasks_needed: int | None
    """Tasks that would show the difference seen, were it real; None where there is none or no spread."""
    test: PairedTest
    adjusted_p: float | None
    """The p after Holm's correction for the measures beside this one; None where the test is not defined."""


def measures_of(family: Sequence[Values], settings: ComparisonSettings) -> list[Measure]:
    """Return measures whose p-values are corrected for their number; one without a test does not count in it.

    Args:
        family: What is looked at together, for instance all levels of difficulty.
        settings: Level, power, draws and test.

    Raises:
        DataError: A measure has no task, or a value that is not finite.
    """
    tests = [_test(values, settings) for values in family]
    adjusted = holm([test.p for test in tests])
    return [
        _measure(values, test, adjusted_p, settings)
        for values, test, adjusted_p in zip(family, tests, adjusted, strict=True)
    ]


def _test(values: Values, settings: ComparisonSettings) -> PairedTest:
    if values.is_share:
        return sign_test(values.differences)
    tests = {RewardTest.signed_rank: signed_rank_test, RewardTest.paired_t: paired_t_test}
    return tests[settings.reward_test](values.differences)


def _measure(values: Values, test: PairedTest, adjusted_p: float | None, settings: ComparisonSettings) -> Measure:
    differences = values.differences
    num, difference, spread = len(differences), round(mean(differences), DECIMALS) + 0.0, spread_of(differences)
    num_wins, num_losses = sum(value > 0 for value in differences), sum(value < 0 for value in differences)
    return Measure(
        name=values.name,
        is_share=values.is_share,
        num_tasks=num,
        before=mean(values.before),
        after=mean(values.after),
        before_interval=_side_interval(values.before, values, settings),
        after_interval=_side_interval(values.after, values, settings),
        difference=difference,
        interval=_interval(values, test, settings),
        num_wins=num_wins,
        num_losses=num_losses,
        num_ties=num - num_wins - num_losses,
        effect_size=cohens_dz(differences),
        minimum_detectable=(
            minimum_detectable_difference(spread, num, power=settings.power, alpha=settings.alpha) if spread else None
        ),
        num_tasks_needed=(
            needed_pairs(difference, spread, power=settings.power, alpha=settings.alpha) if spread else None
        ),
        test=test,
        adjusted_p=adjusted_p,
    )


def _interval(values: Values, test: PairedTest, settings: ComparisonSettings) -> Interval:
    """Return the interval of the mean difference."""
    draws = {"confidence": settings.confidence, "num_resamples": settings.num_resamples, "seed": settings.seed}
    if values.is_share:
        return success_interval(values.differences, test, **draws)
    low, high = values.range
    return paired_bootstrap_interval(values.differences, value_range=(low - high, high - low), **draws)


def _side_interval(values: Sequence[float], of: Values, settings: ComparisonSettings) -> Interval:
    """Return Wilson's interval where every task is a success or none, with one rollout a task; else the bootstrap's."""
    if of.is_share and set(values) <= {0.0, 1.0}:
        return wilson_interval(round(sum(values)), len(values), settings.confidence)
    return bootstrap_interval(
        values,
        confidence=settings.confidence,
        num_resamples=settings.num_resamples,
        seed=settings.seed,
        value_range=of.range,
    )

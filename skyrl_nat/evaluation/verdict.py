"""What a measure allows to be said, in one sentence."""

from dataclasses import dataclass
from enum import StrEnum

from skyrl_nat.evaluation.measures import ComparisonSettings, Measure
from skyrl_nat.evaluation.paired_tests import smallest_num_pairs


class Decision(StrEnum):
    """What a comparison found."""

    better = "better"
    worse = "worse"
    no_difference = "no_difference"
    """Every task scored the same."""
    cannot_tell = "cannot_tell"
    """What differs may be chance; this is never shown as "no difference"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A decision and the sentence that gives its reason."""

    decision: Decision
    sentence: str


def verdict_of(measure: Measure, settings: ComparisonSettings) -> Verdict:
    """Return what the measure says at the level set.

    Args:
        measure: With its corrected p.
        settings: Those that the measure was made with.
    """
    if measure.test.num_different == 0:
        sentence = "no difference: every task scored the same; test not defined"
        return Verdict(decision=Decision.no_difference, sentence=sentence)
    p, direction = measure.adjusted_p, measure.test.direction
    if p is None or p > settings.alpha:
        return Verdict(decision=Decision.cannot_tell, sentence=f"cannot tell: {_why_not(measure, settings)}")
    if measure.difference * direction <= 0:
        sentence = f"cannot tell: more tasks moved one way, the mean did not: {_seen(measure, settings)}"
        return Verdict(decision=Decision.cannot_tell, sentence=sentence)
    if measure.is_share and measure.interval.low <= 0 <= measure.interval.high:
        sentence = f"cannot tell: more tasks moved one way, the mean may not have: {_seen(measure, settings)}"
        return Verdict(decision=Decision.cannot_tell, sentence=sentence)
    decision = Decision.better if direction > 0 else Decision.worse
    return Verdict(decision=decision, sentence=f"{decision}: {_seen(measure, settings)}")


def verdict_of_both(success: Measure, reward: Measure, settings: ComparisonSettings) -> Verdict:
    """Return what success says; reward speaks only where every task's success is as it was.

    Which of the two speaks does not depend on which side is called before, so the level of the tests holds.
    """
    found = verdict_of(success, settings)
    of_reward = verdict_of(reward, settings)
    if found.decision is not Decision.no_difference or of_reward.decision is Decision.no_difference:
        return found
    sentence = f"{of_reward.sentence}; the success of every task is as before"
    return Verdict(decision=of_reward.decision, sentence=sentence)


def _why_not(measure: Measure, settings: ComparisonSettings) -> str:
    test, needed = measure.test, smallest_num_pairs(settings.alpha)
    if test.num_pairs < 2:
        return f"{test.note}; at least {needed} tasks are needed for p <= {settings.alpha:.3g}"
    if test.smallest_p is not None and test.smallest_p > settings.alpha:
        return (
            f"with {test.num_pairs} tasks the smallest possible p is {test.smallest_p:.3g}, so {settings.alpha:.3g} "
            f"cannot be reached; at least {needed} tasks are needed"
        )
    reasons = [_seen(measure, settings)]
    if test.p is None:
        reasons.append(test.note)
    if test.smallest_p is not None and test.num_different < needed:
        reasons.append(f"only {test.num_different} tasks changed, at least {needed} must")
    if measure.minimum_detectable is not None:
        smallest = _amount(measure, measure.minimum_detectable)
        reasons.append(
            f"{measure.num_tasks} tasks show a difference of {smallest} or more with {settings.power:.0%} power"
        )
    if measure.num_tasks_needed is not None and measure.num_tasks_needed > measure.num_tasks:
        reasons.append(f"a difference as seen needs about {measure.num_tasks_needed} tasks")
    return "; ".join(reasons)


def _seen(measure: Measure, settings: ComparisonSettings) -> str:
    low, high = (_number(measure, end) for end in (measure.interval.low, measure.interval.high))
    p = "" if measure.adjusted_p is None else f", p = {measure.adjusted_p:.3g}"
    return (
        f"{measure.name} went from {_number(measure, measure.before)} to {_number(measure, measure.after)}, by "
        f"{_amount(measure, measure.difference, '+')} ({settings.confidence:.0%} interval {low} to {high}{p}, "
        f"{measure.num_tasks} tasks)"
    )


def _number(measure: Measure, value: float, sign: str = "") -> str:
    return f"{value * 100:{sign}.1f}" if measure.is_share else f"{value:{sign}.3f}"


def _amount(measure: Measure, value: float, sign: str = "") -> str:
    return _number(measure, value, sign) + (" percentage points" if measure.is_share else "")

"""Suggested labels, for somebody to look at: they stand beside manual labels and are never used in their place."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from skyrl_nat.data.traces.features import FEATURES
from skyrl_nat.data.traces.learned import LearnedReward
from skyrl_nat.data.traces.record import Trace, TraceOutcome
from skyrl_nat.data.traces.rewards import TraceScore, TraceScorer
from skyrl_nat.data.traces.verdicts import LABEL, PARTS, SUGGESTED
from skyrl_nat.errors import DataError

CONFIDENCE = "suggested_confidence"
REASON = "suggested_reason"
NUM_REASONS = 3
LABELLED = "already labelled by hand"
NOTHING_KNOWN = "nothing speaks for either"
_ABOUT = {feature.name: feature.about for feature in FEATURES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What a trace is probably worth."""

    is_good: bool
    confidence: float
    """In [0.5, 1]: with a learned reward the calibrated probability of being right, else only the rubric's number."""
    reason: str
    """What spoke most for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoLabelled:
    """Traces with suggestions, all of them in their order, and why others have none."""

    traces: list[Trace]
    num_suggested: int
    left_out: dict[str, int]


def auto_label(traces: Sequence[Trace], scorer: TraceScorer, learned: LearnedReward | None = None) -> AutoLabelled:
    """Suggest a label for every trace that has none by hand.

    `labels` gets `suggested_label`, `suggested_confidence`, `suggested_reason` and `parts`; a suggestion made earlier
    is replaced, and the key `label` is never touched.

    Args:
        traces: With their manual labels in `labels`.
        scorer: Its rubric decides where there is no learned reward, at 0.5.
        learned: Decides where there is one.
    """
    labelled, left_out = list[Trace](), Counter[str]()
    for trace in traces:
        score = None if LABEL in trace.labels else scorer.score(trace)
        suggestion = score and suggest(trace, score, learned)
        if score and suggestion:
            trace = with_suggestion(trace, suggestion, score)
        else:
            left_out[NOTHING_KNOWN if score else LABELLED] += 1
        labelled.append(trace)
    return AutoLabelled(traces=labelled, num_suggested=len(traces) - left_out.total(), left_out=dict(left_out))


def suggest(trace: Trace, score: TraceScore, learned: LearnedReward | None = None) -> Suggestion | None:
    """Return what a trace is probably worth; None where nothing is known of it."""
    probability = learned(trace) if learned else score.reward
    if probability is None:
        return None
    is_good = probability >= 0.5
    reason = _learned_reason(trace, learned, is_good) if learned else _rubric_reason(trace, score, is_good)
    return Suggestion(is_good=is_good, confidence=max(probability, 1 - probability), reason=reason)


def with_suggestion(trace: Trace, suggestion: Suggestion, score: TraceScore) -> Trace:
    """Return a trace with a suggestion.

    Raises:
        DataError: It has a manual label.
    """
    if LABEL in trace.labels:
        raise DataError(f"A suggestion must not stand over a manual label, but {trace.trace_id} has one. Leave it out")
    suggested = {SUGGESTED: suggestion.is_good, CONFIDENCE: suggestion.confidence, REASON: suggestion.reason}
    return replace(trace, labels={**trace.labels, **suggested, PARTS: score.parts})


def review_order(traces: Iterable[Trace]) -> list[Trace]:
    """Return traces in the order in which looking at them says most: the least sure ones first, labelled ones last."""
    return sorted(traces, key=lambda trace: (LABEL in trace.labels, trace.labels.get(CONFIDENCE, 0.5)))


def _learned_reason(trace: Trace, learned: LearnedReward, is_good: bool) -> str:
    """Name the features that add most to the side that won."""
    sign = 1 if is_good else -1
    added = {name: sign * learned.slope * value for name, value in learned.contributions(trace).items()}
    strongest = sorted((name for name in added if added[name] > 0), key=lambda name: -added[name])[:NUM_REASONS]
    named = "; ".join(f"{_ABOUT[name]} ({name}, {sign * added[name]:+.2f})" for name in strongest)
    return f"learned from labels: {named or 'the share of good ones alone'}"


def _rubric_reason(trace: Trace, score: TraceScore, is_good: bool) -> str:
    """Name the outcome and the parts furthest on the side that won."""
    outcome = [] if trace.outcome is TraceOutcome.unknown else [f"outcome {trace.outcome}"]
    parts = [name for name, value in score.parts.items() if (value >= 0.5) is is_good and name != "completion"]
    parts.sort(key=lambda name: score.parts[name], reverse=is_good)
    return "; ".join([*outcome, *(f"{name} {score.parts[name]:.2f}" for name in parts[:NUM_REASONS])])

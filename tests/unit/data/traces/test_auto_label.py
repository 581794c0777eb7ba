"""Suggested labels: reasons, confidence, and manual labels that are never touched."""

import pytest

from skyrl_nat.data.traces.auto_label import Suggestion, auto_label, review_order, suggest, with_suggestion
from skyrl_nat.data.traces.datasets import Balance, kto_examples
from skyrl_nat.data.traces.learned import train_reward
from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome, TraceStep
from skyrl_nat.data.traces.rewards import TraceRewardConfig, TraceScore, TraceScorer
from skyrl_nat.errors import DataError

SCORER = TraceScorer(TraceRewardConfig(weights={"efficiency": 0}))


def trace(name: str, num_errors: int = 0, **fields) -> Trace:
    steps = tuple(TraceStep(kind=StepKind.tool, tool="bash", is_error=n < num_errors) for n in range(4))
    return Trace(**{"trace_id": name, "source": "chat", "request": f"Do {name}", "steps": steps} | fields)


def test_the_rubric_suggests_with_its_own_number_and_says_why() -> None:
    found = auto_label([trace("a", 1, outcome=TraceOutcome.failure)], SCORER).traces[0]
    # completion 0 of weight 0.25, tool_success 0.75 of weight 0.15
    reward = 0.75 * 0.15 / 0.4
    assert found.labels == {
        "suggested_label": False,
        "suggested_confidence": pytest.approx(1 - reward),
        "suggested_reason": "outcome failure",
        "parts": {"tool_success": 0.75, "completion": 0.0},
    }


def test_the_reason_names_the_parts_on_the_side_that_won() -> None:
    score = TraceScore(reward=0.8, parts={"syntax": 0.9, "completion": 1.0, "tool_success": 0.2}, left_out={})
    suggestion = suggest(trace("a", outcome=TraceOutcome.success), score)
    assert suggestion == Suggestion(is_good=True, confidence=0.8, reason="outcome success; syntax 0.90")


def test_a_manual_label_is_never_overwritten() -> None:
    by_hand = [trace("a", 4, labels={"label": True, "note": "x"}), trace("b", 4, labels={"label": "no"})]
    result = auto_label([*by_hand, trace("c", 4)], SCORER)
    assert result.traces[:2] == by_hand
    assert (result.num_suggested, result.left_out) == (1, {"already labelled by hand": 2})
    with pytest.raises(DataError, match="must not stand over a manual label"):
        with_suggestion(by_hand[0], Suggestion(is_good=False, confidence=1.0, reason=""), SCORER.score(by_hand[0]))


def test_a_new_suggestion_takes_the_place_of_an_old_one() -> None:
    old = trace("a", labels={"suggested_label": False, "suggested_confidence": 0.9, "suggested_reason": "old"})
    found = auto_label([old], SCORER).traces[0].labels
    assert (found["suggested_label"], found["suggested_confidence"]) == (True, 1.0)
    assert found["suggested_reason"] == "tool_success 1.00"


def test_where_nothing_is_known_nothing_is_suggested() -> None:
    result = auto_label([trace("a", steps=())], SCORER)
    assert (result.num_suggested, result.left_out) == (0, {"nothing speaks for either": 1})
    assert result.traces[0].labels == {}


def test_a_learned_reward_decides_and_names_its_features() -> None:
    traces = [trace(f"t{index:02d}", 0 if index % 2 else 3 + index % 4 // 2) for index in range(40)]
    learned = train_reward(traces, {found.trace_id: index % 2 == 1 for index, found in enumerate(traces)})
    fresh = auto_label([trace("good", 0), trace("bad", 4)], SCORER, learned)
    good, bad = (found.labels for found in fresh.traces)
    assert (good["suggested_label"], bad["suggested_label"]) == (True, False)
    assert bad["suggested_confidence"] == 1 - learned(trace("bad", 4)) > 0.8
    assert "num_errors" in bad["suggested_reason"]
    assert bad["suggested_reason"].startswith("learned from labels: ")


def test_the_least_sure_ones_are_looked_at_first() -> None:
    sure, unsure, done = (
        trace("sure", labels={"suggested_confidence": 0.9}),
        trace("unsure", labels={"suggested_confidence": 0.6}),
        trace("done", labels={"label": True}),
    )
    names = [found.trace_id for found in review_order([done, sure, unsure, trace("unknown")])]
    assert names == ["unknown", "unsure", "sure", "done"]


def test_suggestions_never_become_training_data_by_themselves() -> None:
    said = (TraceStep(kind=StepKind.message, text="done"),)
    rows = [trace("a", steps=said, labels={"label": True}), trace("b", steps=said, labels={"label": False})]
    suggested = trace("c", steps=said, labels={"suggested_label": True})
    found = kto_examples([*rows, suggested], balance=Balance.weights)
    assert (found.num_good, found.num_bad, found.left_out) == (1, 1, {"no reward": 1})

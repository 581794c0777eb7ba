"""The learned reward: quality, refusals, JSON, determinism."""

import json
import math
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from skyrl_nat.data.traces.calibration import calibration_bins, calibration_error
from skyrl_nat.data.traces.features import FEATURES, feature_table, feature_values
from skyrl_nat.data.traces.fitting import fit_calibration, make_folds
from skyrl_nat.data.traces.learned import LearnedReward, load_reward, train_reward
from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome, TraceStep
from skyrl_nat.errors import DataError


def trace(name: str, num_errors: int = 0, answer: str = "done", request: str = "", **fields) -> Trace:
    steps = [TraceStep(kind=StepKind.tool, tool="bash", arguments={"n": n}, is_error=n < num_errors) for n in range(4)]
    steps.append(TraceStep(kind=StepKind.message, text=answer))
    return Trace(trace_id=name, source="chat", request=request or f"Do {name}", steps=tuple(steps), **fields)


def labelled(count: int, *, noise: float, seed: int = 3) -> tuple[list[Trace], dict[str, bool]]:
    """Good ones have fewer errors, but for a share of noise."""
    draw = random.Random(seed)
    traces, labels = [], {}
    for index in range(count):
        is_good = index % 2 == 0
        looks_good = is_good if draw.random() >= noise else not is_good
        errors = draw.choice([0, 0, 1]) if looks_good else draw.choice([1, 3, 4])
        traces.append(trace(f"t{index:03d}", errors, "word " * draw.randint(1, 40)))
        labels[f"t{index:03d}"] = is_good
    return traces, labels


@pytest.fixture(scope="module")
def learned() -> LearnedReward:
    return train_reward(*labelled(80, noise=0.05), seed=1)


def test_it_tells_good_from_bad_and_shows_its_quality_with_counts(learned: LearnedReward) -> None:
    quality = learned.quality
    assert (quality.num_good, quality.num_bad, quality.num_folds, quality.is_by_request) == (40, 40, 5, True)
    assert quality.auc > 0.8
    assert quality.brier < 0.17 < quality.base_brier == pytest.approx(0.25, abs=0.01)
    assert quality.calibration_error < 0.1
    assert sum(found.count for found in quality.bins) == 80
    assert learned(trace("x", 0, "word " * 20)) > 0.7 > 0.2 > learned(trace("x", 4, "word " * 20))
    assert "5 folds (requests kept together), 40 good and 40 bad: AUC 0." in quality.to_markdown()


def test_the_formula_in_plain_python_is_that_of_scikit_learn(learned: LearnedReward) -> None:
    traces, labels = labelled(80, noise=0.05)
    rows = np.array([feature_values(found) for found in traces])
    scaler = StandardScaler().fit(rows)
    model = LogisticRegression(max_iter=1000).fit(scaler.transform(rows), list(labels.values()))
    scores = model.decision_function(scaler.transform(rows))
    expected = 1 / (1 + np.exp(-(learned.slope * scores + learned.offset)))
    assert [learned(found) for found in traces] == pytest.approx(expected.tolist(), abs=1e-9)


def test_labels_without_a_pattern_predict_chance_not_its_opposite() -> None:
    quality = train_reward(*labelled(80, noise=0.5, seed=5)).quality
    assert 0.3 < quality.auc < 0.7
    assert quality.brier == pytest.approx(quality.base_brier, abs=0.03)


def test_calibration_of_scores_that_point_the_wrong_way_is_the_share_of_good_ones() -> None:
    targets = np.array([1] * 9 + [0] * 29)
    assert fit_calibration(-targets.astype(float), targets) == (0.0, pytest.approx(math.log(10 / 30)))


def test_calibration_uses_smoothed_targets() -> None:
    # Two scores: the best fit gives the smoothed shares 4/5 and 1/5, so slope and offset follow from their log-odds.
    slope, offset = fit_calibration(np.array([1.0] * 3 + [-1.0] * 3), np.array([1] * 3 + [0] * 3))
    assert (slope, offset) == (pytest.approx(math.log(4), abs=1e-3), pytest.approx(0.0, abs=1e-3))


def test_calibration_error_by_hand() -> None:
    bins = calibration_bins([0.05, 0.09, 1.0, 0.95], [False, True, True, True])
    assert [(found.low, found.count, found.share_good) for found in bins] == [(0.0, 2, 0.5), (0.8, 2, 1.0)]
    assert calibration_error(bins) == pytest.approx((2 * (0.5 - 0.07) + 2 * (1 - 0.975)) / 4)


def test_the_same_seed_gives_the_same_bytes_in_any_order(tmp_path: Path, learned: LearnedReward) -> None:
    traces, labels = labelled(80, noise=0.05)
    again = train_reward(traces[::-1], dict(reversed(labels.items())), seed=1)
    learned.save(tmp_path / "a.json")
    again.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert train_reward(traces, labels, seed=2).quality != learned.quality


def test_it_comes_back_from_json_as_it_was(tmp_path: Path, learned: LearnedReward) -> None:
    learned.save(tmp_path / "reward.json")
    loaded = load_reward(tmp_path / "reward.json")
    assert loaded == learned
    assert loaded(trace("x", 2)) == learned(trace("x", 2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v | {"format": "other"}, "its format is not"),
        (lambda v: v | {"feature_names": v["feature_names"][::-1]}, "made for other features"),
        (lambda v: v | {"bias": math.nan}, "NaN is no JSON"),
        (lambda v: v | {"weights": v["weights"][1:]}, "needs a mean, a scale above 0 and a weight"),
        (lambda v: v | {"scales": [0.0] * len(FEATURES)}, "needs a mean, a scale above 0 and a weight"),
        (lambda v: v | {"slope": "1"}, "no finite number"),
        (lambda v: v | {"extra": 1}, "extra"),
        (lambda v: [v], "its format is not"),
    ],
)
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, learned: LearnedReward, change, message: str) -> None:
    path = tmp_path / "reward.json"
    learned.save(path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(DataError, match=message):
        load_reward(path)


@pytest.mark.parametrize(("num_good", "num_bad"), [(10, 9), (20, 0), (0, 20), (40, 4), (0, 0)])
def test_ds_13_too_few_labels_or_one_class_are_refused_with_the_counts(num_good: int, num_bad: int) -> None:
    traces = [trace(f"t{index}", index % 3) for index in range(num_good + num_bad)]
    labels = {found.trace_id: index < num_good for index, found in enumerate(traces)}
    with pytest.raises(DataError, match=f"got {num_good} good and {num_bad} bad"):
        train_reward(traces, labels)


def test_the_smallest_set_that_is_taken_works() -> None:
    traces = [trace(f"t{index:02d}", 0 if index < 15 else 3) for index in range(20)]
    learned = train_reward(traces, {found.trace_id: index < 15 for index, found in enumerate(traces)})
    assert (learned.quality.num_good, learned.quality.num_bad, learned.quality.auc) == (15, 5, 1.0)


def test_a_label_without_its_trace_is_refused() -> None:
    traces, labels = labelled(40, noise=0.0)
    with pytest.raises(DataError, match="1 of 41 do not: nowhere"):
        train_reward(traces, labels | {"nowhere": True})


def test_without_scikit_learn_the_sentence_names_it_and_a_saved_reward_still_works(tmp_path: Path, learned) -> None:
    learned.save(tmp_path / "reward.json")
    program = (
        "import sys; sys.modules['sklearn'] = None; from pathlib import Path\n"
        "from skyrl_nat.data.traces.learned import load_reward, train_reward\n"
        "from skyrl_nat.data.traces.record import Trace\n"
        "traces = [Trace(trace_id=str(n), source='', request='', steps=()) for n in range(20)]\n"
        "print(load_reward(Path(sys.argv[1]))(traces[0]))\n"
        "train_reward(traces, {str(n): n < 10 for n in range(20)})"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "reward.json")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert float(result.stdout) == learned(Trace(trace_id="0", source="", request="", steps=()))
    assert "ConfigError: A learned reward must be fitted with scikit-learn" in result.stderr


def test_traces_of_one_request_are_never_on_both_sides() -> None:
    targets = np.array([0, 1] * 20)
    requests = [f"r{index // 4}" for index in range(40)]
    folds, is_by_request = make_folds(targets, requests, seed=0, min_left=1)
    assert is_by_request
    for train, test in folds:
        assert not {requests[i] for i in train} & {requests[i] for i in test}
    assert sorted(i for _, test in folds for i in test) == list(range(40))


def test_where_requests_cannot_be_kept_together_the_quality_says_so() -> None:
    traces, labels = labelled(40, noise=0.0)
    quality = train_reward([replace(found, task_id="the only one") for found in traces], labels).quality
    assert not quality.is_by_request
    assert "requests shared between folds" in quality.to_markdown()


def test_features_are_finite_for_odd_traces_and_all_are_in_the_table() -> None:
    odd = [
        Trace(trace_id="a", source="", request="", steps=()),
        trace("b", seconds=math.nan, reward=math.inf, outcome=TraceOutcome.error, labels={"label": True}),
        Trace(trace_id="c", source="", request="", steps=(TraceStep(kind=StepKind.tool, arguments={"x": {1}}),)),
    ]
    assert all(math.isfinite(value) for found in odd for value in feature_values(found))
    assert feature_values(odd[1]) == feature_values(replace(odd[1], labels={}, seconds=None))
    assert feature_table().count("\n") == len(FEATURES) + 1


def test_features_by_hand() -> None:
    call = TraceStep(kind=StepKind.tool, tool="bash", arguments={"a": 1})
    steps = (call, call, replace(call, is_error=True, num_completion_tokens=6))
    found = Trace(trace_id="a", source="", request="Write a.py", steps=steps, outcome=TraceOutcome.failure)
    values = dict(zip([feature.name for feature in FEATURES], feature_values(found), strict=True))
    log = math.log
    assert values == pytest.approx(
        {"num_steps": log(4), "num_tools": log(4), "num_errors": log(2), "repeated_calls": 2 / 3}
        | {"ends_with_error": 1, "ends_with_answer": 0, "request_chars": log(11), "answer_chars": 0}
        | {"message_chars": 0, "reasoning_chars": 0, "tokens": log(7), "seconds": 0, "num_files": 0, "num_code": 0}
        | {"succeeded": 0, "failed": 1, "broke_off": 0}
        | {"syntax": 0.5, "tool_success": 2 / 3, "format": 0, "has_format": 1}
    )

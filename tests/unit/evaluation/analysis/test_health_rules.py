"""What is said of the training itself: each figure where it is bad, and not where it is good."""

import math

import numpy as np
import pytest
from recorded_run import findings_in, judged, train_run


def play(step, rng):
    return judged("r", float(rng.random()))


def wave(step: int) -> float:
    """No trend."""
    return math.sin(2.6 * step)


BAD = {
    "entropy collapses": ("entropy", {"loss__token_entropy": lambda step: math.exp(-step / 6)}),
    "entropy grows": ("entropy", {"loss__token_entropy": lambda step: 1 + step / 10}),
    "far": ("distance", {"loss__token_kl": lambda step: step / 40}),
    "clipped": ("clipping", {"loss__clip_fraction": 0.3}),
    "stale": ("staleness", {"rollout__staleness__mean": 3.0}),
    "no signal": ("signal", {"batch__signal_groups__share": 0.3}),
    "cut off": ("cut_off", {"rollout__length_finish__mean": 0.4}),
    "longer": ("length", {"rollout__completion_tokens__mean": lambda step: 100 + 5 * step}),
    "rollouts take the time": ("time", {"time__rollout_s": 8.0, "time__train_s": 1.0, "time__step_s": 10.0}),
}
GOOD = {
    "entropy falls a little": ("entropy", {"loss__token_entropy": lambda step: 1 - step / 100}),
    "entropy is noise": ("entropy", {"loss__token_entropy": lambda step: 1 + 0.9 * wave(step)}),
    "near": ("distance", {"loss__token_kl": 0.1}),
    "not clipped": ("clipping", {"loss__clip_fraction": 0.1}),
    "fresh": ("staleness", {"rollout__staleness__mean": 1.0}),
    "signal": ("signal", {"batch__signal_groups__share": 0.8}),
    "not cut off": ("cut_off", {"rollout__length_finish__mean": 0.02}),
    "same length": ("length", {"rollout__completion_tokens__mean": lambda step: 100 + 50 * wave(step)}),
    "little longer": ("length", {"rollout__completion_tokens__mean": lambda step: 100 + 0.1 * step}),
    "time is split": ("time", {"time__rollout_s": 5.0, "time__train_s": 4.0, "time__step_s": 10.0}),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_bad_is_found(tmp_path, name: str):
    rule, metrics = BAD[name]
    train_run(tmp_path, play, **metrics)
    (found,) = findings_in(tmp_path, rule)
    assert found.evidence["n"] == 30
    assert found.sentence.endswith(".")


@pytest.mark.parametrize("name", GOOD)
def test_what_is_good_is_not(tmp_path, name: str):
    rule, metrics = GOOD[name]
    train_run(tmp_path, play, **metrics)
    assert findings_in(tmp_path, rule) == []


@pytest.mark.parametrize(("reward", "word"), [(1.0, "too easy"), (0.0, "too hard")])
def test_groups_without_signal_are_too_easy_or_too_hard(tmp_path, reward: float, word: str):
    train_run(tmp_path, lambda step, rng: judged("r", reward), batch__signal_groups__share=0.0)
    (found,) = findings_in(tmp_path, "signal")
    assert word in found.sentence
    assert (found.evidence["groups"], found.evidence["all_succeed"]) == (40, 40 * int(reward))


def test_length_that_success_does_not_follow_is_a_warning(tmp_path):
    def longer(rises: bool):
        def one(step, rng):
            is_success = bool(rng.random() < (step / 30 if rises else 0.3))
            return judged("r", float(rng.random()), num_tokens=10 + step, is_success=is_success)

        return one

    train_run(tmp_path / "padding", longer(False))
    train_run(tmp_path / "thinking", longer(True))
    assert str(findings_in(tmp_path / "padding", "length")[0].severity) == "warning"
    assert str(findings_in(tmp_path / "thinking", "length")[0].severity) == "note"


def test_the_rest_of_a_step_is_a_phase_of_its_own(tmp_path):
    train_run(tmp_path, play, time__rollout_s=1.0, time__step_s=10.0, time__checkpoint_s=5.0)
    (found,) = findings_in(tmp_path, "time")
    assert found.sentence == "other takes 90% of a step's 10 s in the last third of steps."
    assert np.isclose(found.evidence["share"], 0.9)

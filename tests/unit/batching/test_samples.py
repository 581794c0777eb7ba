"""From scored groups to samples."""

import dataclasses
from typing import Any

import pytest

from skyrl_nat.batching.samples import build_samples
from skyrl_nat.errors import DataError
from skyrl_nat.types import Outcome, RewardResult, Rollout, RolloutGroup, Task

TASK = Task(task_id="t", family="f", payload={})


def make_rollout(rollout_id: str, **changes: Any) -> Rollout:
    """Return a finished rollout of two prompt tokens, a sampled one and the sampled end token."""
    values: dict[str, Any] = {
        "rollout_id": rollout_id,
        "task": TASK,
        "token_ids": [5, 6, 7, 2],
        "loss_mask": [False, False, True, True],
        "rollout_logprobs": [0.0, 0.0, -1.5, -0.25],
        "token_versions": [-1, -1, 3, 4],
        "turns": [],
        "prompt": [],
        "outcome": Outcome.FINISHED,
        "reward": RewardResult(total=0.0, parts={}, is_success=False),
    }
    return Rollout(**(values | changes))


def make_group(*rollouts: Rollout) -> RolloutGroup:
    return RolloutGroup(task=TASK, index=9, rollouts=list(rollouts))


def test_a_sample_keeps_the_recorded_tokens_and_the_end_token_in_the_loss() -> None:
    """Rows 46 and 50: loss tokens are the sampled ones, the end token included, nothing re-encoded."""
    rollout = make_rollout("r0")
    (sample,) = build_samples(make_group(rollout), [[0.5] * 4], mask_truncated=False)
    assert sample.token_ids == rollout.token_ids
    assert sample.loss_mask == rollout.loss_mask
    assert sample.rollout_logprobs == rollout.rollout_logprobs
    assert (sample.advantages[-1], sample.oldest_version) == (0.5, 3)
    assert (sample.sample_id, sample.group_id) == ("r0", "t@9")
    assert sample.num_loss_tokens == 2


def test_failed_rollouts_give_no_sample_and_advantages_follow_the_survivors() -> None:
    """Row 18: a crash is neither a reward of 0 nor a shift of the others' advantages."""
    group = make_group(
        make_rollout("a"),
        make_rollout("b", outcome=Outcome.INFRASTRUCTURE_FAILURE, reward=None),
        make_rollout("c"),
        make_rollout("d", outcome=Outcome.VALIDATOR_FAILURE, reward=None),
    )
    samples = build_samples(group, [[1.0] * 4, [-1.0] * 4], mask_truncated=False)
    assert [(s.sample_id, s.advantages[-1]) for s in samples] == [("a", 1.0), ("c", -1.0)]


def test_a_reward_of_zero_is_trained() -> None:
    """Row 17."""
    assert len(build_samples(make_group(make_rollout("a")), [[-0.5] * 4], mask_truncated=False)) == 1


def test_truncated_rollouts_are_left_out_only_on_request() -> None:
    """Rows 6 and 47: truncation is a flag; leaving it out removes the tokens from both sides."""
    group = make_group(make_rollout("a"), make_rollout("b", outcome=Outcome.TRUNCATED))
    kept = build_samples(group, [[1.0] * 4, [-1.0] * 4], mask_truncated=False)
    masked = build_samples(group, [[1.0] * 4, [-1.0] * 4], mask_truncated=True)
    assert [s.sample_id for s in kept] == ["a", "b"]
    assert [s.sample_id for s in masked] == ["a"]


def test_a_rollout_without_loss_tokens_gives_no_sample() -> None:
    empty = make_rollout("a", loss_mask=[False] * 4, outcome=Outcome.POLICY_FAILURE)
    assert build_samples(make_group(empty), [[0.0] * 4], mask_truncated=False) == []


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"loss_mask": [False, True]}, "loss_mask"),
        ({"rollout_logprobs": [0.0]}, "rollout_logprobs"),
        ({"token_versions": []}, "token_versions"),
        ({"loss_mask": [True, False, True, True]}, "token 0"),
        ({"rollout_logprobs": [0.0, 0.0, float("nan"), -1.0]}, "position 2"),
        ({"rollout_logprobs": [0.0, 0.0, -1.0, None]}, "position 3"),
    ],
)
def test_a_broken_record_is_refused_with_its_rollout(changes: dict[str, Any], found: str) -> None:
    """Row 50: lengths and log-probs are checked before anything is trained."""
    broken = dataclasses.replace(make_rollout("bad-one"), **changes)
    with pytest.raises(DataError, match="bad-one") as error:
        build_samples(make_group(broken), [[1.0] * 4], mask_truncated=False)
    assert found in str(error.value)


def test_advantages_must_fit_the_valid_rollouts_and_be_finite() -> None:
    group = make_group(make_rollout("a"))
    with pytest.raises(DataError, match="one entry per valid rollout"):
        build_samples(group, [[1.0] * 4, [2.0] * 4], mask_truncated=False)
    with pytest.raises(DataError, match="must have a finite advantage"):
        build_samples(group, [[float("nan")] * 4], mask_truncated=False)


def test_segments_become_samples_of_one_rollout() -> None:
    """Row 11, GM-13: cut in two, the rollout keeps its advantage and its id."""
    rollout = make_rollout(
        "b",
        token_ids=[5, 6, 7, 2, 5, 8, 9],
        loss_mask=[False, False, True, True, False, False, True],
        rollout_logprobs=[0.0, 0.0, -1.5, -0.25, 0.0, 0.0, -2.0],
        token_versions=[-1, -1, 3, 4, -1, -1, 4],
        segment_starts=[0, 4],
    )
    first, second = build_samples(make_group(rollout), [[0.5] * 7], mask_truncated=False)
    assert (first.sample_id, second.sample_id) == ("b#0", "b#1")
    assert {first.rollout_id, second.rollout_id} == {"b"}
    assert (first.token_ids, second.token_ids) == ([5, 6, 7, 2], [5, 8, 9])
    assert second.rollout_logprobs[-1] == -2.0
    assert first.advantages[-1] == second.advantages[-1] == 0.5

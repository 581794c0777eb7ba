"""KTO's baseline."""

import pytest
import torch
from policy_ranks import make_grid, make_samples

from skyrl_nat.batching.mismatch import kto_baseline, mismatched_samples
from skyrl_nat.batching.packing import attach_logprobs
from skyrl_nat.errors import DataError


def test_every_prompt_gets_an_answer_to_another_prompt() -> None:
    """Six samples of three groups; a pair is no longer than the longest sample, so that it fits a micro-batch."""
    samples = make_samples()
    pairs = mismatched_samples(samples)
    assert [pair.sample_id for pair in pairs] == ["r0|r4", "r1|r5", "r2|r0", "r3|r1", "r4|r2", "r5|r3"]
    prompt, answer = samples[0].loss_mask.index(True), samples[4].loss_mask.index(True)
    longest = max(sample.num_tokens for sample in samples)
    whole = samples[0].token_ids[:prompt] + samples[4].token_ids[answer:]
    assert len(whole) > longest
    assert pairs[0].token_ids == whole[:longest]
    assert pairs[1].token_ids == samples[1].token_ids[:10] + samples[5].token_ids[2:]
    assert pairs[1].loss_mask == [False] * 10 + samples[5].loss_mask[2:]


def test_one_group_alone_has_no_other_prompt() -> None:
    assert mismatched_samples(make_samples()[:2]) == []
    assert kto_baseline([]) == 0.0


@pytest.mark.parametrize(("shift", "expected"), [(0.5, 0.5), (-0.5, 0.0)])
def test_baseline_is_the_mean_per_sequence_and_never_negative(shift: float, expected: float) -> None:
    samples = make_samples()
    (row,), _ = make_grid(samples, budget=64)
    tokens = sum(sample.num_loss_tokens for sample in samples)
    attach_logprobs(row, [torch.full((m.num_tokens,), -1.0 + shift) for m in row], "old_logprobs")
    attach_logprobs(row, [torch.full((m.num_tokens,), -1.0) for m in row], "ref_logprobs")
    assert kto_baseline(row) == pytest.approx(expected * tokens / len(samples))


def test_baseline_without_logprobs_is_refused() -> None:
    (row,), _ = make_grid(make_samples())
    with pytest.raises(DataError, match="log-probs of policy and reference"):
        kto_baseline(row)

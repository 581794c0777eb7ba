"""KTO's baseline."""

import pytest
import torch
from policy_ranks import make_grid, make_samples

from skyrl_nat.batching.mismatch import kto_baseline, mismatched_samples
from skyrl_nat.batching.packing import attach_logprobs
from skyrl_nat.errors import DataError


def test_every_prompt_gets_the_answer_of_the_one_before() -> None:
    samples = make_samples()
    pairs = mismatched_samples(samples)
    assert [pair.sample_id for pair in pairs] == ["r0|r5", "r1|r0", "r2|r1", "r3|r2", "r4|r3", "r5|r4"]
    prompt, answer = samples[0].loss_mask.index(True), samples[5].loss_mask.index(True)
    assert pairs[0].token_ids == samples[0].token_ids[:prompt] + samples[5].token_ids[answer:]
    assert pairs[0].num_loss_tokens == samples[5].num_loss_tokens
    assert sorted(pair.num_loss_tokens for pair in pairs) == sorted(sample.num_loss_tokens for sample in samples)


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

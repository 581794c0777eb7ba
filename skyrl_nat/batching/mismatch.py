"""KTO's baseline: how far the policy is from the reference on answers to other prompts."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from skyrl_nat.algorithms.losses import masked_log_ratio
from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.errors import DataError
from skyrl_nat.types import TrainingSample


def mismatched_samples(samples: Sequence[TrainingSample]) -> list[TrainingSample]:
    """Return every prompt of the batch with an answer to another prompt: one of the group before, in a circle.

    A prompt is what comes before a sample's first loss token. An answer is cut where the pair would be longer than
    the longest sample. A batch of one group has no other prompt and gives no pairs.

    Args:
        samples: Of one optimizer step.

    Reference:
        KTO, arXiv:2402.01306, section 4.1 (estimate of the reference point).
    """
    groups: dict[str, list[TrainingSample]] = {}
    for sample in samples:
        groups.setdefault(sample.group_id, []).append(sample)
    members = list(groups.values())
    if len(members) < 2:
        return []
    longest = max(sample.num_tokens for sample in samples)
    return [
        _pair(sample, members[place - 1][number % len(members[place - 1])], longest)
        for place, group in enumerate(members)
        for number, sample in enumerate(group)
    ]


def _pair(sample: TrainingSample, other: TrainingSample, longest: int) -> TrainingSample:
    """Return the prompt of one sample with the answer of another one."""
    start, other_start = sample.loss_mask.index(True), other.loss_mask.index(True)
    answer = slice(other_start, other_start + longest - start)
    return replace(
        other,
        sample_id=f"{sample.sample_id}|{other.sample_id}",
        token_ids=sample.token_ids[:start] + other.token_ids[answer],
        loss_mask=[False] * start + other.loss_mask[answer],
        rollout_logprobs=[0.0] * start + other.rollout_logprobs[answer],
        advantages=[0.0] * start + other.advantages[answer],
    )


def kto_baseline(micro_batches: Sequence[MicroBatch]) -> float:
    """Return the mean over sequences of log policy - log reference, in nats, not below 0.

    Args:
        micro_batches: Of `mismatched_samples`, with the log-probs of both as `old_logprobs` and `ref_logprobs`.

    Raises:
        DataError: Log-probs are missing.
    """
    total, count = 0.0, 0
    for micro_batch in micro_batches:
        if micro_batch.old_logprobs is None or micro_batch.ref_logprobs is None:
            raise DataError(
                "mismatched pairs must come with log-probs of policy and reference, got a micro-batch without. "
                "Attach both."
            )
        ratio = masked_log_ratio(micro_batch.old_logprobs, micro_batch.ref_logprobs, micro_batch.loss_mask)
        total += float(ratio.to(torch.float64).sum())
        count += len(micro_batch.sample_ids)
    return max(total / count, 0.0) if count else 0.0

"""KTO's baseline: how far the policy is from the reference on answers to other prompts."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from skyrl_nat.algorithms.losses import masked_log_ratio
from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.errors import DataError
from skyrl_nat.types import TrainingSample


def mismatched_samples(samples: Sequence[TrainingSample]) -> list[TrainingSample]:
    """Return every prompt of the batch with the answer to the prompt before it, the first one's with the last one's.

    A prompt is what comes before a sample's first loss token.

    Args:
        samples: Of one optimizer step.

    Reference:
        KTO, arXiv:2402.01306, section 4.1 (estimate of the reference point).
    """
    pairs: list[TrainingSample] = []
    for index, sample in enumerate(samples):
        other = samples[index - 1]
        start, other_start = sample.loss_mask.index(True), other.loss_mask.index(True)
        pairs.append(
            replace(
                other,
                sample_id=f"{sample.sample_id}|{other.sample_id}",
                token_ids=sample.token_ids[:start] + other.token_ids[other_start:],
                loss_mask=[False] * start + other.loss_mask[other_start:],
                rollout_logprobs=[0.0] * start + other.rollout_logprobs[other_start:],
                advantages=[0.0] * start + other.advantages[other_start:],
            )
        )
    return pairs


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

"""From a scored group to training samples."""

import math
from collections.abc import Sequence

from skyrl_nat.errors import DataError
from skyrl_nat.types import Outcome, Rollout, RolloutGroup, TrainingSample


def build_samples(group: RolloutGroup, advantages: Sequence[float], *, mask_truncated: bool) -> list[TrainingSample]:
    """Turn the valid rollouts of a group into training samples, in order.

    A rollout without loss tokens gives no sample.

    Args:
        group: The scored group.
        advantages: One per entry of `group.valid_rollouts`, in the same order.
        mask_truncated: Leave truncated rollouts out.

    Raises:
        DataError: A rollout's lists disagree in length, its first token is in the loss, or a log-prob or
            advantage is missing or not finite.
    """
    rollouts = group.valid_rollouts
    if len(advantages) != len(rollouts):
        raise DataError(
            f"advantages must have one entry per valid rollout ({len(rollouts)}) of group "
            f"{group_id(group)}, got {len(advantages)}. Compute them from group.valid_rollouts."
        )
    samples: list[TrainingSample] = []
    for rollout, advantage in zip(rollouts, advantages, strict=True):
        check_rollout(rollout)
        if not math.isfinite(advantage):
            raise DataError(
                f"the advantage of rollout {rollout.rollout_id} must be finite, got {advantage}. "
                "Check the reward parts of its group."
            )
        is_left_out = mask_truncated and rollout.outcome is Outcome.TRUNCATED
        if rollout.num_loss_tokens == 0 or is_left_out:
            continue
        samples.append(
            TrainingSample(
                sample_id=rollout.rollout_id,
                group_id=group_id(group),
                token_ids=list(rollout.token_ids),
                loss_mask=list(rollout.loss_mask),
                rollout_logprobs=list(rollout.rollout_logprobs),
                advantage=float(advantage),
                oldest_version=rollout.oldest_version,
            )
        )
    return samples


def group_id(group: RolloutGroup) -> str:
    """Return the id that the samples of one group share: task id and stream index."""
    return f"{group.task.task_id}@{group.index}"


def check_rollout(rollout: Rollout) -> None:
    """Refuse a rollout whose token record cannot be trained on.

    Raises:
        DataError: See `build_samples`.
    """
    length = len(rollout.token_ids)
    for name in ("loss_mask", "rollout_logprobs", "token_versions"):
        found = len(getattr(rollout, name))
        if found != length:
            raise DataError(
                f"{name} of rollout {rollout.rollout_id} must have one entry per token ({length}), "
                f"got {found}. The recorder must write all four lists together."
            )
    if length and rollout.loss_mask[0]:
        raise DataError(
            f"the first token of rollout {rollout.rollout_id} must not be in the loss, got True: nothing "
            "precedes it. Start every sequence with a prompt token."
        )
    for position, logprob in enumerate(rollout.rollout_logprobs):
        # A record that came from JSON can hold None whatever the type says.
        is_missing = not isinstance(logprob, float | int) or not math.isfinite(logprob)  # pyright: ignore[reportUnnecessaryIsInstance]
        if rollout.loss_mask[position] and is_missing:
            raise DataError(
                f"rollout {rollout.rollout_id} must have a finite log-prob for every sampled token, got "
                f"{logprob} at position {position}. Ask the engine for log-probs of sampled tokens."
            )

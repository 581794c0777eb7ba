"""From a scored group to training samples."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from skyrl_nat.errors import DataError
from skyrl_nat.types import Outcome, Rollout, RolloutGroup, TrainingSample


def build_samples(
    group: RolloutGroup, advantages: Sequence[Sequence[float]], *, mask_truncated: bool
) -> list[TrainingSample]:
    """Turn the valid rollouts of a group into training samples, in order: one for every segment of a rollout.

    A segment without loss tokens gives no sample.

    Args:
        group: The scored group.
        advantages: One list per entry of `group.valid_rollouts`, in the same order, with one entry per token.
        mask_truncated: Leave truncated rollouts out.

    Raises:
        DataError: A rollout's lists disagree in length, a segment's first token is in the loss, or a log-prob
            or advantage is missing or not finite.
    """
    rollouts = group.valid_rollouts
    if len(advantages) != len(rollouts):
        raise DataError(
            f"advantages must have one entry per valid rollout ({len(rollouts)}) of group "
            f"{group_id(group)}, got {len(advantages)}. Compute them from group.valid_rollouts."
        )
    samples: list[TrainingSample] = []
    for rollout, values in zip(rollouts, advantages, strict=True):
        check_rollout(rollout, values)
        if mask_truncated and rollout.outcome is Outcome.TRUNCATED:
            continue
        borders = [*rollout.segment_starts, len(rollout.token_ids)]
        for number, (start, end) in enumerate(pairwise(borders)):
            if not any(rollout.loss_mask[start:end]):
                continue
            samples.append(
                TrainingSample(
                    sample_id=f"{rollout.rollout_id}#{number}" if len(borders) > 2 else rollout.rollout_id,
                    rollout_id=rollout.rollout_id,
                    group_id=group_id(group),
                    token_ids=rollout.token_ids[start:end],
                    loss_mask=rollout.loss_mask[start:end],
                    rollout_logprobs=rollout.rollout_logprobs[start:end],
                    advantages=list(values[start:end]),
                    oldest_version=rollout.oldest_version,
                )
            )
    return samples


def group_id(group: RolloutGroup) -> str:
    """Return the id that the samples of one group share: task id and stream index."""
    return f"{group.task.task_id}@{group.index}"


def check_rollout(rollout: Rollout, advantages: Sequence[float]) -> None:
    """Refuse a rollout whose token record cannot be trained on.

    Raises:
        DataError: See `build_samples`.
    """
    length = len(rollout.token_ids)
    columns = {name: getattr(rollout, name) for name in ("loss_mask", "rollout_logprobs", "token_versions")}
    for name, values in (columns | {"advantages": advantages}).items():
        if len(values) != length:
            raise DataError(
                f"{name} of rollout {rollout.rollout_id} must have one entry per token ({length}), "
                f"got {len(values)}. The recorder must write all lists together."
            )
    for start in rollout.segment_starts if length else []:
        if rollout.loss_mask[start]:
            raise DataError(
                f"token {start} of rollout {rollout.rollout_id}, the first of a context, must not be in the loss, "
                "got True: nothing precedes it. Start every context with a prompt token."
            )
    for what, values in (("log-prob", rollout.rollout_logprobs), ("advantage", advantages)):
        # A record that came from JSON can hold None whatever the type says, which becomes NaN.
        is_wrong = ~np.isfinite(np.array(values, dtype=np.float64)) & np.array(rollout.loss_mask, dtype=np.bool_)
        if is_wrong.any():
            position = int(is_wrong.argmax())
            raise DataError(
                f"rollout {rollout.rollout_id} must have a finite {what} for every sampled token, got "
                f"{values[position]} at position {position}. Look at the engine's log-probs and the reward parts."
            )

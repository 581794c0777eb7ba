"""Groups that teach nothing, replaced within their batch."""

import random
from collections.abc import Sequence
from dataclasses import replace

from skyrl_nat.batching.advantages import has_signal
from skyrl_nat.config.algorithm import AlgorithmConfig
from skyrl_nat.types import RolloutGroup


def replace_flat_groups(
    groups: Sequence[RolloutGroup], config: AlgorithmConfig, *, seed: int
) -> Sequence[RolloutGroup]:
    """Return the batch with copies of other groups in the place of those without a signal.

    A copy's ids end in `+` and its place in the batch, so that it counts as a group of its own. A batch without any
    signal stays as it is.

    Args:
        groups: One batch.
        config: Section `algorithm`.
        seed: Of the choice.
    """
    telling = [group for group in groups if has_signal(group, config)]
    if not telling:
        return groups
    generator = random.Random(seed)
    return [
        group if has_signal(group, config) else _copy(generator.choice(telling), place)
        for place, group in enumerate(groups)
    ]


def _copy(group: RolloutGroup, place: int) -> RolloutGroup:
    task = replace(group.task, task_id=f"{group.task.task_id}+{place}")
    rollouts = [replace(rollout, rollout_id=f"{rollout.rollout_id}+{place}") for rollout in group.rollouts]
    return replace(group, task=task, rollouts=rollouts)

"""Scored groups for tests, without engines or environments."""

from typing import Any

from skyrl_nat.types import FinishReason, Outcome, RewardResult, Rollout, RolloutGroup, Task, Turn


def make_turn(num_tokens: int, reward: float = 0.0) -> Turn:
    """Return a turn of which only its length and reward matter."""
    return Turn(
        completion_text="",
        observations=[],
        num_prompt_tokens=2,
        num_completion_tokens=num_tokens,
        finish_reason=FinishReason.STOP,
        generate_s=0.0,
        environment_s=0.0,
        reward=reward,
    )


def make_rollout(name: str, reward: float | None, *, num_sampled: int = 2, **changes: Any) -> Rollout:
    """Return a rollout of two prompt tokens and one turn; one without a reward has failed."""
    result = None if reward is None else RewardResult(total=reward, parts={}, is_success=reward >= 1.0)
    values: dict[str, Any] = {
        "rollout_id": name,
        "task": Task(task_id="t", family="f", payload={}),
        "token_ids": [1, 2] + [3] * num_sampled,
        "loss_mask": [False, False] + [True] * num_sampled,
        "rollout_logprobs": [0.0, 0.0] + [-1.0] * num_sampled,
        "token_versions": [-1, -1] + [0] * num_sampled,
        "turns": [make_turn(num_sampled)],
        "prompt": [],
        "outcome": Outcome.INFRASTRUCTURE_FAILURE if reward is None else Outcome.FINISHED,
        "reward": result,
    }
    return Rollout(**(values | changes))


def make_group(index: int, rewards: list[float | None], **changes: Any) -> RolloutGroup:
    """Return a group with one rollout per reward, named `<index>-<number>`."""
    rollouts = [make_rollout(f"{index}-{number}", reward, **changes) for number, reward in enumerate(rewards)]
    return RolloutGroup(task=Task(task_id=f"t{index}", family="f", payload={}), index=index, rollouts=rollouts)

"""Groups as an evaluation leaves them, with no more in them than what a comparison reads."""

from collections.abc import Sequence

from skyrl_nat.types import Outcome, RewardResult, Rollout, RolloutGroup, Task

LOST = (Outcome.INFRASTRUCTURE_FAILURE, Outcome.VALIDATOR_FAILURE)


def played(
    task_id: str,
    *rewards: float,
    outcome: Outcome = Outcome.FINISHED,
    difficulty: int = 1,
    family: str = "f",
    parts: dict[str, float] | None = None,
) -> RolloutGroup:
    """Return a task with one rollout a reward; a reward of 1 or more is a success."""
    task = Task(task_id=task_id, family=family, payload={"text": task_id}, hidden={"x": 1}, difficulty=difficulty)
    rollouts = [rollout(task, reward, outcome, {"p": reward} if parts is None else parts) for reward in rewards]
    return RolloutGroup(task=task, index=0, rollouts=rollouts)


def rollout(task: Task, reward: float, outcome: Outcome, parts: dict[str, float]) -> Rollout:
    """Return a rollout; one that was lost has no reward."""
    result = RewardResult(total=reward, parts=parts, is_success=reward >= 1)
    return Rollout(
        rollout_id=f"{task.task_id}/0",
        task=task.visible(),
        token_ids=[1, 2],
        loss_mask=[False, True],
        rollout_logprobs=[0.0, -1.0],
        token_versions=[-1, 0],
        turns=[],
        prompt=[],
        outcome=outcome,
        reward=None if outcome in LOST else result,
    )


def side(rewards: Sequence[float]) -> list[RolloutGroup]:
    """Return tasks `t00`, `t01`, ... with one greedy rollout each."""
    return [played(f"t{index:02d}", reward) for index, reward in enumerate(rewards)]

"""Groups as an evaluation leaves them, with no more in them than what a report or a comparison reads."""

from collections.abc import Sequence

from skyrl_nat.types import FinishReason, Outcome, RewardResult, Rollout, RolloutGroup, Task, Turn

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


def rollout(
    task: Task, reward: float, outcome: Outcome, parts: dict[str, float], *, number: int = 0, text: str = "said"
) -> Rollout:
    """Return a rollout of one turn; one that was lost has no reward."""
    findings = [] if reward >= 1 else [f"must be 1, found {reward}"]
    result = RewardResult(total=reward, parts=parts, is_success=reward >= 1, findings=findings)
    turn = Turn(
        completion_text=text,
        observations=[],
        num_prompt_tokens=1,
        num_completion_tokens=1,
        finish_reason=FinishReason.STOP,
        generate_s=0.5,
        environment_s=0.25,
    )
    return Rollout(
        rollout_id=f"{task.task_id}/{number}",
        task=task.visible(),
        token_ids=[1, 2],
        loss_mask=[False, True],
        rollout_logprobs=[0.0, -1.0],
        token_versions=[-1, 0],
        turns=[turn],
        prompt=[],
        outcome=outcome,
        reward=None if outcome in LOST else result,
    )


def side(rewards: Sequence[float]) -> list[RolloutGroup]:
    """Return tasks `t00`, `t01`, ... with one greedy rollout each."""
    return [played(f"t{index:02d}", reward) for index, reward in enumerate(rewards)]


def group(
    index: int,
    rewards: Sequence[float | None],
    outcome: Outcome = Outcome.FINISHED,
    *,
    difficulty: int = 1,
    family: str = "f",
    text: str = "said",
) -> RolloutGroup:
    """Return the group of task `t<index>`, at that place in the stream; None in a reward's place is a lost rollout."""
    task = Task(task_id=f"t{index}", family=family, payload={}, difficulty=difficulty)
    members = [
        rollout(
            task, reward or 0.0, LOST[0] if reward is None else outcome, {"part": reward or 0.0}, number=i, text=text
        )
        for i, reward in enumerate(rewards)
    ]
    return RolloutGroup(task=task, index=index, rollouts=members, score_s=0.125)

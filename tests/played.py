"""Groups as they are after playing, by what they are worth."""

from collections.abc import Sequence

from skyrl_nat.types import FinishReason, Outcome, RewardResult, Rollout, RolloutGroup, Task, Turn

LOST = Outcome.INFRASTRUCTURE_FAILURE


def rollout(name: str, task: Task, reward: float | Outcome, outcome: Outcome = Outcome.FINISHED, text: str = "said"):
    """Return a rollout of one turn; a reward of 1 is a success, an outcome in its place means no verdict."""
    result = None
    if not isinstance(reward, Outcome):
        findings = [] if reward == 1.0 else [f"must be 1, found {reward}"]
        result = RewardResult(total=reward, parts={"part": reward}, is_success=reward == 1.0, findings=findings)
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
        rollout_id=name,
        task=task,
        token_ids=[1, 2],
        loss_mask=[False, True],
        rollout_logprobs=[0.0, -1.0],
        token_versions=[-1, 0],
        turns=[turn],
        prompt=[],
        outcome=reward if isinstance(reward, Outcome) else outcome,
        reward=result,
    )


def group(
    index: int,
    rewards: Sequence[float | Outcome],
    outcome: Outcome = Outcome.FINISHED,
    *,
    difficulty: int = 1,
    family: str = "f",
    text: str = "said",
) -> RolloutGroup:
    """Return the group of task `t<index>`."""
    task = Task(task_id=f"t{index}", family=family, payload={}, difficulty=difficulty)
    members = [rollout(f"eval-{index}-{i}", task, reward, outcome, text) for i, reward in enumerate(rewards)]
    return RolloutGroup(task=task, index=index, rollouts=members, score_s=0.125)

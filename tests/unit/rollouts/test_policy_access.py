"""Who asks the policy is seen to move with every answer, not only at the end of a rollout."""

import asyncio
from typing import Any

from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.errors import EngineError
from skyrl_nat.rollouts.draft import Draft
from skyrl_nat.rollouts.policy_access import Attempt, PolicyAccess
from skyrl_nat.rollouts.runner import GroupRunner
from skyrl_nat.types import Completion, FinishReason, GenerationRequest, Outcome, Rollout, Task

ANSWER = Completion(token_ids=[7], logprobs=[-0.5], finish_reason=FinishReason.STOP, token_versions=[0])


class ThreeTurns:
    """Asks three times in each rollout; the very first request of all fails."""

    def __init__(self, config: RolloutConfig) -> None:
        self.seen: list[int] = []
        """What the runner had counted at each request."""
        self.policy = PolicyAccess(generate=self.generate, codec=None, config=config, seed=0)  # type: ignore[arg-type]
        self.runner = GroupRunner(player=self, score=self.score, config=config, max_in_flight=1)

    async def generate(self, request: GenerationRequest) -> Completion:
        self.seen.append(self.runner.num_finished)
        if len(self.seen) == 1:
            raise EngineError("gone")
        return ANSWER

    async def play(self, task: Task, attempt: Attempt) -> Rollout:
        draft = Draft(prompt=[], token_ids=[1, 2], outcome=Outcome.FINISHED)
        try:
            for turn in range(3):
                await self.policy.ask(attempt, turn, [1, 2])
        except EngineError:
            draft.outcome = Outcome.INFRASTRUCTURE_FAILURE
        return draft.to_rollout(attempt.rollout_id, task, {})

    async def score(self, task: Task, rollout: Rollout) -> Rollout:
        return rollout


def test_answered_turns_and_played_and_scored_rollouts_are_counted() -> None:
    """Two rollouts of three turns, one after the other: 6 answers, 2 played, 2 scored; no answer counts nothing."""
    player: Any = ThreeTurns(RolloutConfig())
    task = Task(task_id="t", family="f", payload={})
    asyncio.run(player.runner.play_group(task, 0, num_rollouts=2, temperature=1.0))
    assert player.seen == [0, 0, 1, 2, 5, 6, 7]
    assert player.runner.num_finished == 10

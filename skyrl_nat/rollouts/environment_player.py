"""Playing one rollout turn by turn with its environment."""

import asyncio
import contextlib
import time
from typing import Any, Protocol

from skyrl_nat.config.rollout import History
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.errors import DeadlineError, EngineError, WorkerError
from skyrl_nat.monitoring import spans
from skyrl_nat.rollouts.deadline import fault_of_deadline
from skyrl_nat.rollouts.draft import Draft
from skyrl_nat.rollouts.policy_access import Attempt, PolicyAccess
from skyrl_nat.types import Completion, FinishReason, Message, Outcome, Rollout, Task, Turn


class Environments(Protocol):
    """Environment workers behind one face; a rollout stays on its worker."""

    async def create(self, rollout_id: str, task: Task) -> list[Message]:
        """Make the environment of a rollout and return its first messages."""
        ...

    async def step(self, rollout_id: str, action: str) -> EnvironmentReply:
        """Play one turn."""
        ...

    async def close(self, rollout_id: str) -> dict[str, Any]:
        """Forget the environment and return its artifact."""
        ...

    def abandon(self, rollout_id: str) -> None:
        """Forget the environment, without an answer."""
        ...


class EnvironmentPlayer:
    """`Player` that asks the engine and steps the environment in turn."""

    def __init__(self, policy: PolicyAccess, environments: Environments) -> None:
        """Take the policy and where episodes are hosted."""
        self._policy = policy
        self._codec = policy.codec
        self._config = policy.config
        self._environments = environments

    async def play(self, task: Task, attempt: Attempt) -> Rollout:
        """Play one rollout once; see `Player`."""
        name = attempt.name
        draft = Draft(prompt=[], token_ids=[])
        artifact: dict[str, Any] = {}
        try:
            with spans.span("environment", call="create"):
                prompt = await self._environments.create(name, task.visible())
            draft = Draft(prompt=prompt, token_ids=self._codec.prompt_tokens(prompt))
            limit = asyncio.timeout(self._config.rollout_timeout_s)
            try:
                async with limit:
                    await self._play_turns(draft, attempt)
            except TimeoutError:
                if not limit.expired():
                    raise  # the deadline of an engine or a worker
                if fault := fault_of_deadline(limit.when()):
                    raise DeadlineError(fault) from None
                draft.outcome = Outcome.TRUNCATED
                draft.reason = f"rollout deadline of {self._config.rollout_timeout_s:g} s"
            artifact = await self._environments.close(name)
        except (EngineError, WorkerError, DeadlineError) as error:
            draft.outcome, draft.reason = Outcome.INFRASTRUCTURE_FAILURE, str(error)
            with contextlib.suppress(WorkerError, DeadlineError):
                await self._environments.close(name)
        except asyncio.CancelledError:
            self._environments.abandon(name)
            raise
        return draft.to_rollout(attempt.rollout_id, task, artifact)

    async def _play_turns(self, draft: Draft, attempt: Attempt) -> None:
        for number in range(self._config.max_turns):
            if self._policy.room(draft.context) < 1:
                self._end_without_room(draft, number)
                return
            completion, reply = await self._play_turn(draft, attempt, number)
            if self._is_over(draft, completion, reply):
                return
            self._continue(draft, completion, reply.observations)
        draft.outcome, draft.reason = Outcome.TRUNCATED, "turn limit"

    async def _play_turn(self, draft: Draft, attempt: Attempt, number: int) -> tuple[Completion, EnvironmentReply]:
        """Ask the policy, give its answer to the environment, and record both."""
        context = draft.context
        with spans.span("turn", turn=number):
            started = time.monotonic()
            completion = await self._policy.ask(attempt, number, context)
            generated = time.monotonic()
            draft.append_completion(completion)
            text = self._codec.decode(completion.token_ids)
            with spans.span("environment", call="step"):
                reply = await self._environments.step(attempt.name, text)
        draft.turns.append(
            Turn(
                completion_text=text,
                observations=reply.observations,
                num_prompt_tokens=len(context),
                num_completion_tokens=len(completion.token_ids),
                finish_reason=completion.finish_reason,
                generate_s=generated - started,
                environment_s=time.monotonic() - generated,
                reward=reply.reward,
            )
        )
        return completion, reply

    def _continue(self, draft: Draft, completion: Completion, observations: list[Message]) -> None:
        """Make the prompt of the next turn."""
        if self._config.history is History.keep:
            is_closed = completion.finish_reason is FinishReason.STOP
            draft.append_context(self._codec.continuation_tokens(observations, is_closed=is_closed))
            return
        messages = list(draft.prompt)
        for turn in draft.turns:
            messages += [{"role": "assistant", "content": turn.completion_text}, *turn.observations]
        draft.set_context(self._codec.prompt_tokens(messages))

    def _is_over(self, draft: Draft, completion: Completion, reply: EnvironmentReply) -> bool:
        draft.environment_reward += reply.reward
        draft.metrics.update(reply.metrics)
        if reply.is_policy_failure:
            draft.outcome, draft.reason = Outcome.POLICY_FAILURE, reply.reason
        elif reply.is_truncated:
            draft.outcome, draft.reason = Outcome.TRUNCATED, "limit of the environment"
        elif reply.is_done:
            draft.outcome, draft.reason = Outcome.FINISHED, ""
        elif completion.finish_reason is FinishReason.LENGTH:
            # A cut turn has no end token, and none is made up: the rollout ends here.
            draft.outcome, draft.reason = Outcome.TRUNCATED, "token limit of a turn"
        else:
            return False
        return True

    def _end_without_room(self, draft: Draft, number: int) -> None:
        if number == 0:
            raise EngineError(
                f"A first prompt must leave room within rollout.max_total_tokens ({self._config.max_total_tokens}), "
                f"this one has {len(draft.context)} tokens. Raise the limit or shorten the task"
            )
        over = len(draft.context) - self._config.max_total_tokens
        if over > 0:
            for values in (draft.token_ids, draft.loss_mask, draft.logprobs, draft.versions):
                del values[-over:]
        draft.outcome, draft.reason = Outcome.TRUNCATED, "token limit of the rollout"

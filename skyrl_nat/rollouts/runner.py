"""Playing one group: G rollouts of one task, each turn by turn, then scored together."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from skyrl_nat.config.rollout import History, RolloutConfig
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.errors import DeadlineError, EngineError, WorkerError
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.types import (
    Completion,
    FinishReason,
    GenerationRequest,
    Message,
    Outcome,
    RewardResult,
    Rollout,
    RolloutGroup,
    SamplingParams,
    Task,
    Turn,
)

GenerateFn = Callable[[GenerationRequest], Awaitable[Completion]]
ScoreFn = Callable[[Task, list[Rollout]], Awaitable[list[Rollout]]]


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


@dataclass(slots=True)
class _Draft:
    """A rollout while it is being played."""

    prompt: list[Message]
    token_ids: list[int]
    loss_mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    outcome: Outcome = Outcome.TRUNCATED
    reason: str = "turn limit"
    environment_reward: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    segment_starts: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self.append_context([])

    @property
    def context(self) -> list[int]:
        """Tokens of the last segment: the next turn's prompt."""
        return self.token_ids[self.segment_starts[-1] :]

    def set_context(self, token_ids: list[int]) -> None:
        """Go on with a prompt: as an extension of the last segment where it is one, else in a new one."""
        context = self.context
        if token_ids[: len(context)] == context:
            self.append_context(token_ids[len(context) :])
            return
        self.segment_starts.append(len(self.token_ids))
        self.append_context(token_ids)

    def append_context(self, token_ids: list[int]) -> None:
        """Add tokens that were not sampled and pad the per-token lists up to the sequence's length."""
        self.token_ids.extend(token_ids)
        missing = len(self.token_ids) - len(self.loss_mask)
        self.loss_mask.extend([False] * missing)
        self.logprobs.extend([0.0] * missing)
        self.versions.extend([-1] * missing)

    def append_completion(self, completion: Completion) -> None:
        """Add sampled tokens."""
        self.token_ids.extend(completion.token_ids)
        self.loss_mask.extend([True] * len(completion.token_ids))
        self.logprobs.extend(completion.logprobs)
        self.versions.extend(completion.token_versions)


class GroupRunner:
    """Plays groups. Whatever happens in a rollout becomes its outcome; only cancellation passes through."""

    def __init__(
        self,
        *,
        generate: GenerateFn,
        environments: Environments,
        score: ScoreFn | None,
        codec: ChatCodec,
        config: RolloutConfig,
        seed: int,
    ) -> None:
        """Wire a runner.

        Args:
            generate: One engine call.
            environments: Where episodes are hosted.
            score: Scores the rollouts of a task; None takes the sum of the environment's step rewards.
            codec: Messages to tokens.
            config: Limits and retries.
            seed: Of all sampling in the run.
        """
        self._generate = generate
        self._environments = environments
        self._score = score
        self.codec = codec
        self._config = config
        self._seed = seed
        self._slots = asyncio.Semaphore(config.max_concurrent_rollouts)

    async def play_group(
        self, task: Task, index: int, *, num_rollouts: int, temperature: float, label: str = "train"
    ) -> RolloutGroup:
        """Play and score the rollouts of one task.

        Args:
            task: With its hidden part, which goes to the reward worker only.
            index: Stream index, part of the rollout ids and of the sampling seeds.
            num_rollouts: G.
            temperature: 0 for greedy.
            label: Keeps ids and seeds of training and evaluation apart.

        Returns:
            The group with all G rollouts, failed ones included.
        """
        names = [f"{label}-{index}-{number}" for number in range(num_rollouts)]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._play_with_retries(task, name, temperature)) for name in names]
        played = time.monotonic()
        rollouts = await self._score_with_retries(task, [done.result() for done in running])
        return RolloutGroup(task=task, index=index, rollouts=rollouts, score_s=time.monotonic() - played)

    async def _play_with_retries(self, task: Task, rollout_id: str, temperature: float) -> Rollout:
        async with self._slots:
            for attempt in range(self._config.max_retries + 1):
                rollout = await self._play(task, rollout_id, attempt, temperature)
                if rollout.outcome is not Outcome.INFRASTRUCTURE_FAILURE:
                    break
        rollout.metrics["retries"] = attempt
        return rollout

    async def _play(self, task: Task, rollout_id: str, attempt: int, temperature: float) -> Rollout:
        """Play one rollout once. `rollout_id` stays the same over attempts, so that seeds do too."""
        name = f"{rollout_id}.{attempt}"
        draft = _Draft(prompt=[], token_ids=[])
        artifact: dict[str, Any] = {}
        try:
            prompt = await self._environments.create(name, task.visible())
            draft = _Draft(prompt=prompt, token_ids=self.codec.prompt_tokens(prompt))
            try:
                async with asyncio.timeout(self._config.rollout_timeout_s):
                    await self._play_turns(draft, name, rollout_id, temperature)
            except TimeoutError:
                draft.outcome = Outcome.TRUNCATED
                draft.reason = f"rollout deadline of {self._config.rollout_timeout_s:g} s"
            artifact = await self._environments.close(name)
        except (EngineError, WorkerError, DeadlineError) as error:
            draft.outcome, draft.reason = Outcome.INFRASTRUCTURE_FAILURE, str(error)
            with contextlib.suppress(WorkerError, DeadlineError):
                await self._environments.close(name)
        return Rollout(
            rollout_id=rollout_id,
            task=task.visible(),
            token_ids=draft.token_ids,
            loss_mask=draft.loss_mask,
            rollout_logprobs=draft.logprobs,
            token_versions=draft.versions,
            turns=draft.turns,
            prompt=draft.prompt,
            outcome=draft.outcome,
            reason=draft.reason,
            artifact=artifact,
            metrics={**draft.metrics, "environment_reward": draft.environment_reward},
            segment_starts=draft.segment_starts,
        )

    async def _play_turns(self, draft: _Draft, name: str, rollout_id: str, temperature: float) -> None:
        for number in range(self._config.max_turns):
            context = draft.context
            room = self._config.max_total_tokens - len(context)
            if room < 1:
                self._end_without_room(draft, number)
                return
            started = time.monotonic()
            request = GenerationRequest(
                request_id=f"{name}/{number}",
                prompt_token_ids=context,
                sampling=SamplingParams(
                    max_new_tokens=min(room, self._config.max_new_tokens),
                    temperature=temperature,
                    seed=request_seed(self._seed, rollout_id, number),
                ),
            )
            completion = await self._generate(request)
            _check_completion(request, completion)
            generated = time.monotonic()
            draft.append_completion(completion)
            text = self.codec.decode(completion.token_ids)
            reply = await self._environments.step(name, text)
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
            if self._is_over(draft, completion, reply):
                return
            self._continue(draft, reply.observations)
        draft.outcome, draft.reason = Outcome.TRUNCATED, "turn limit"

    def _continue(self, draft: _Draft, observations: list[Message]) -> None:
        """Make the prompt of the next turn."""
        if self._config.history is History.keep:
            draft.append_context(self.codec.continuation_tokens(observations))
            return
        messages = list(draft.prompt)
        for turn in draft.turns:
            messages += [{"role": "assistant", "content": turn.completion_text}, *turn.observations]
        draft.set_context(self.codec.prompt_tokens(messages))

    def _is_over(self, draft: _Draft, completion: Completion, reply: EnvironmentReply) -> bool:
        draft.environment_reward += reply.reward
        draft.metrics.update(reply.metrics)
        if reply.is_policy_failure:
            draft.outcome, draft.reason = Outcome.POLICY_FAILURE, reply.reason
        elif reply.is_done:
            draft.outcome, draft.reason = Outcome.FINISHED, ""
        elif completion.finish_reason is FinishReason.LENGTH:
            # A cut turn has no end token, and none is made up: the rollout ends here.
            draft.outcome, draft.reason = Outcome.TRUNCATED, "token limit of a turn"
        else:
            return False
        return True

    def _end_without_room(self, draft: _Draft, number: int) -> None:
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

    async def _score_with_retries(self, task: Task, rollouts: list[Rollout]) -> list[Rollout]:
        if self._score is None:
            return [_with_environment_reward(rollout) for rollout in rollouts]
        result = list(rollouts)
        pending = [i for i, rollout in enumerate(rollouts) if rollout.outcome.is_trainable]
        for _ in range(self._config.max_retries + 1):
            if not pending:
                break
            try:
                scored = await self._score(task, [rollouts[i] for i in pending])
            except (WorkerError, DeadlineError) as error:
                scored = [replace(rollouts[i], outcome=Outcome.VALIDATOR_FAILURE, reason=str(error)) for i in pending]
            for i, rollout in zip(pending, scored, strict=True):
                result[i] = rollout
            pending = [i for i in pending if result[i].outcome is Outcome.VALIDATOR_FAILURE]
        return result


def request_seed(run_seed: int, rollout_id: str, turn: int) -> int:
    """Return the sampling seed of one request: 56 bits, a function of its arguments only."""
    digest = hashlib.sha256(f"{run_seed}/{rollout_id}/{turn}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def _check_completion(request: GenerationRequest, completion: Completion) -> None:
    if completion.finish_reason is FinishReason.ABORT:
        raise EngineError(f"The engine must finish request {request.request_id}, it was aborted. It is retried")
    lengths = (len(completion.token_ids), len(completion.logprobs), len(completion.token_versions))
    if len(set(lengths)) != 1:
        raise EngineError(
            f"The engine must give a log-prob and a version for every token of request {request.request_id}, got "
            f"{lengths[1]} and {lengths[2]} for {lengths[0]} tokens. It is retried"
        )


def _with_environment_reward(rollout: Rollout) -> Rollout:
    if not rollout.outcome.is_trainable:
        return rollout
    total = rollout.metrics["environment_reward"]
    reward = RewardResult(total=total, parts={"environment": total}, is_success=total >= 1.0, is_by_turn=True)
    return replace(rollout, reward=reward)

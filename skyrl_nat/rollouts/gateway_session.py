"""One rollout behind the gateway: dialogues of a client become recorded tokens.

A request that extends an answered dialogue goes on with that dialogue's very tokens. Any other one (the first, a
rewritten or condensed history, the second of two parallel calls) is rendered anew and starts a segment, which is
trained as a sequence of its own.
"""

import asyncio
import json
import secrets
import time
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import TemplateError

from skyrl_nat.config.rollout import History
from skyrl_nat.rollouts.chat_request import ChatRequest, RefusedError, canonical_message
from skyrl_nat.rollouts.chat_response import ChatAnswer
from skyrl_nat.rollouts.draft import Draft
from skyrl_nat.rollouts.policy_access import Attempt, PolicyAccess
from skyrl_nat.rollouts.tool_calls import split_tool_calls
from skyrl_nat.types import Completion, FinishReason, Message, Turn

LIMIT_CODE = "rollout_limit"
"""Code of a refusal because the rollout's turns or time are used up."""
LENGTH_CODE = "context_length_exceeded"
"""Code of a refusal because the dialogue fills the context; OpenAI's own."""
FAILURE_CODE = "engine_failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """A dialogue up to an answer, and where its tokens lie in the draft."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    start: int
    end: int
    is_closed: bool
    turn: int
    finished: float

    def is_extended_by(self, request: ChatRequest) -> bool:
        num = len(self.messages)
        return len(request.messages) > num and request.messages[:num] == self.messages and request.tools == self.tools


class GatewaySession:
    """Answers the requests of one attempt and records them in `draft`."""

    def __init__(self, policy: PolicyAccess, attempt: Attempt) -> None:
        """Open a session with a key of its own."""
        self.attempt = attempt
        self.api_key = secrets.token_urlsafe(32)
        self.draft = Draft(prompt=[], token_ids=[])
        self.draft.metrics["ignored_settings"] = 0
        self.fault = ""
        """How the engine failed."""
        self.limit = ""
        """Which limit a request met."""
        self._policy = policy
        self._num_requests = 0
        self._answered: list[_Answered] = []
        self._running: set[asyncio.Task[Completion]] = set()
        self._is_ended = False

    async def answer(self, request: ChatRequest) -> ChatAnswer:
        """Sample the answer to a request and record it.

        Raises:
            RefusedError: A limit is met, the session has ended, or the engine failed.
        """
        self._require_open()
        extended = [answered for answered in self._answered if answered.is_extended_by(request)]
        # Of equal dialogues the last one, which a client keeps after asking again.
        before = max(extended, key=lambda answered: (len(answered.messages), answered.turn), default=None)
        context = self._context(request, before)
        self._require_room(context)
        turn, self._num_requests = self._num_requests, self._num_requests + 1
        self.draft.metrics["ignored_settings"] += len(request.ignored)
        started = time.monotonic()
        completion = await self._ask(turn, context, request)
        self._require_open()
        if before is not None:
            self._record_observations(request, before, started)
        return self._record(request, context, completion, started)

    def end(self, limit: str = "") -> None:
        """Answer nothing any more, what is running included; a limit is remembered as the reason."""
        self._is_ended = True
        self.limit = self.limit or limit
        for task in self._running:
            task.cancel()

    def _context(self, request: ChatRequest, before: _Answered | None) -> list[int]:
        """Return the prompt of a request: recorded tokens and what is new, or everything rendered."""
        codec = self._policy.codec
        try:
            if before is None and request.tools and not codec.shows_tools(request.tools):
                raise RefusedError(
                    400,
                    "tools_unsupported",
                    "The model's chat template must show tools to the policy, and does not. Leave tools out or use a "
                    "model whose template has a place for them",
                )
            if before is None or self._policy.config.history is History.render:
                return codec.prompt_tokens(request.messages, request.tools)
            new = request.messages[len(before.messages) :]
            recorded = self.draft.token_ids[before.start : before.end]
            return recorded + codec.continuation_tokens(new, is_closed=before.is_closed)
        except (TemplateError, TypeError, ValueError, RecursionError) as error:
            raise RefusedError(
                400, "template_error", f"The chat template must take the messages, it says: {error}. Change them"
            ) from error

    def _require_open(self) -> None:
        if self._is_ended:
            raise self._refusal()

    def _refusal(self) -> RefusedError:
        if self.fault:
            return RefusedError(503, FAILURE_CODE, f"An engine failed: {self.fault}. The rollout is played again")
        return RefusedError(400, LIMIT_CODE, f"The rollout is over ({self.limit or 'closed'}). Ask nothing more")

    def _require_room(self, context: list[int]) -> None:
        config = self._policy.config
        if self._num_requests >= config.max_turns:
            self.limit = "turn limit"
            raise RefusedError(
                400, LIMIT_CODE, f"A rollout must have at most rollout.max_turns={config.max_turns} turns. It is over"
            )
        if self._policy.room(context) < 1:
            self.limit = "token limit of the rollout"
            raise RefusedError(
                400,
                LENGTH_CODE,
                f"A dialogue must leave room within rollout.max_total_tokens={config.max_total_tokens}, this one has "
                f"{len(context)} tokens. Shorten it",
            )

    async def _ask(self, turn: int, context: list[int], request: ChatRequest) -> Completion:
        asking = self._policy.ask(self.attempt, turn, context, max_new_tokens=request.max_tokens, stop=request.stop)
        task = asyncio.ensure_future(asking)
        self._running.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            self._require_open()
            raise
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"
            self.end()
            raise self._refusal() from error
        finally:
            self._running.discard(task)

    def _record_observations(self, request: ChatRequest, before: _Answered, started: float) -> None:
        observations = [_as_logged(message) for message in request.messages[len(before.messages) :]]
        turn = self.draft.turns[before.turn]
        self.draft.turns[before.turn] = replace(
            turn, observations=observations, environment_s=started - before.finished
        )

    def _record(self, request: ChatRequest, context: list[int], completion: Completion, started: float) -> ChatAnswer:
        draft, codec = self.draft, self._policy.codec
        if not draft.turns:
            draft.prompt = [_as_logged(message) for message in request.messages]
        draft.set_context(context)
        draft.append_completion(completion)
        text = codec.decode(completion.token_ids)
        finished = time.monotonic()
        draft.turns.append(
            Turn(
                completion_text=text,
                observations=[],
                num_prompt_tokens=len(context),
                num_completion_tokens=len(completion.token_ids),
                finish_reason=completion.finish_reason,
                generate_s=finished - started,
                environment_s=0.0,
            )
        )
        answer_id = f"chatcmpl-{self.attempt.name}-{len(draft.turns)}"
        message, finish_reason = _message(answer_id, text, completion, request)
        self._answered.append(
            _Answered(
                messages=[*request.messages, canonical_message(message)],
                tools=request.tools,
                start=draft.segment_starts[-1],
                end=len(draft.token_ids),
                is_closed=completion.finish_reason is FinishReason.STOP,
                turn=len(draft.turns) - 1,
                finished=finished,
            )
        )
        return ChatAnswer(
            answer_id=answer_id,
            created=int(time.time()),
            message=message,
            finish_reason=finish_reason,
            num_prompt_tokens=len(context),
            num_completion_tokens=len(completion.token_ids),
            logprobs=self._logprobs(completion) if request.has_logprobs else None,
        )

    def _logprobs(self, completion: Completion) -> dict[str, Any]:
        pairs = zip(completion.token_ids, completion.logprobs, strict=True)
        tokens = [(self._policy.codec.show([token_id]), logprob) for token_id, logprob in pairs]
        content = [
            {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": []}
            for token, logprob in tokens
        ]
        return {"content": content, "refusal": None}


def _message(answer_id: str, text: str, completion: Completion, request: ChatRequest) -> tuple[dict[str, Any], str]:
    """Return the assistant message of a completion and OpenAI's finish reason."""
    if completion.finish_reason is FinishReason.STOP_WORD:
        # OpenAI leaves out what the client named; the run's own stop words stay.
        ends = [at for at in map(text.find, request.stop) if at >= 0]
        text = text[: min(ends, default=len(text))]
    content, calls = split_tool_calls(text) if request.tools else (text, [])
    if calls:
        written = [
            {
                "id": f"call_{answer_id}_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for number, call in enumerate(calls)
        ]
        return {"role": "assistant", "content": content or None, "tool_calls": written}, "tool_calls"
    is_cut = completion.finish_reason is FinishReason.LENGTH
    return {"role": "assistant", "content": content}, "length" if is_cut else "stop"


def _as_logged(message: dict[str, Any]) -> Message:
    calls = message.get("tool_calls")
    return Message(role=message["role"], content=message["content"] + (json.dumps(calls) if calls else ""))

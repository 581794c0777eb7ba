"""A gateway on a real socket over a scripted engine, and real OpenAI clients that ask it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from functools import cache
from typing import Any

from fakes import FakeEngine
from openai import AsyncOpenAI
from tiny_model import make_tiny_tokenizer

from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.gateway import Gateway
from skyrl_nat.rollouts.gateway_session import GatewaySession
from skyrl_nat.rollouts.policy_access import Attempt, PolicyAccess
from skyrl_nat.types import Completion, FinishReason, GenerationRequest

EOS = 2
HERMES = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""A chat template that shows tools and calls."""
TOOLS: list[Any] = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'


class NumberCodec:
    """A prompt is 100, its messages' numbers and 102; between answers come 201 and numbers; text is numbers."""

    def prompt_tokens(self, messages: list[Any], tools: Any = ()) -> list[int]:
        return [100, *self._numbers(messages), 102]

    def continuation_tokens(self, observations: list[Any], *, is_closed: bool = True) -> list[int]:
        return [*([] if is_closed else [0]), 201, *self._numbers(observations)]

    def decode(self, token_ids: list[int]) -> str:
        return " ".join(str(token) for token in token_ids if token)

    def _numbers(self, messages: list[Any]) -> list[int]:
        return [int(part) for message in messages for part in message["content"].split()]


@cache
def hermes_codec() -> ChatCodec:
    tokenizer = make_tiny_tokenizer()
    tokenizer.chat_template = HERMES
    return ChatCodec(tokenizer)


class ScriptedEngine(FakeEngine):
    """Answers with scripted completions in order, the last one again and again; remembers requests."""

    def __init__(self, *answers: Completion, **how: Any) -> None:
        super().__init__(**how)
        self.answers = answers
        self.requests: list[GenerationRequest] = []
        self.num_cancelled = 0
        self.asked, self.cancelled = asyncio.Event(), asyncio.Event()

    async def generate(self, request: GenerationRequest) -> Completion:
        number = min(len(self.requests), len(self.answers) - 1)
        self.requests.append(request)
        self.asked.set()
        try:
            await super().generate(request)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            self.cancelled.set()
            raise
        return self.answers[number]


def completion(tokens: list[int], reason: FinishReason = FinishReason.STOP, version: int = 3) -> Completion:
    return Completion(
        token_ids=tokens,
        logprobs=[-0.5 - index for index in range(len(tokens))],
        finish_reason=reason,
        token_versions=[version] * len(tokens),
    )


def says(text: str, reason: FinishReason = FinishReason.STOP) -> Completion:
    """Return the completion of a text in tokens of the tiny tokenizer."""
    end = [EOS] if reason is FinishReason.STOP else []
    return completion([*hermes_codec().encode(text), *end], reason)


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


@contextlib.asynccontextmanager
async def open_gateway(engine: Any, codec: Any = None, **settings: Any) -> AsyncIterator[Gateway]:
    config = RolloutConfig(**{"max_turns": 4, "max_new_tokens": 64, "max_total_tokens": 1024, **settings})
    policy = PolicyAccess(generate=engine.generate, codec=codec or hermes_codec(), config=config, seed=5)
    async with Gateway(policy) as gateway:
        yield gateway


def open_session(gateway: Gateway, number: int = 0) -> GatewaySession:
    return gateway.open(Attempt(rollout_id=f"train-0-{number}", number=0, temperature=1.0))


def client_of(gateway: Gateway, session: GatewaySession, **how: Any) -> AsyncOpenAI:
    return AsyncOpenAI(
        **{"base_url": gateway.base_url(session), "api_key": session.api_key, "max_retries": 2, "timeout": 30, **how}
    )


@contextlib.asynccontextmanager
async def dialogue(engine: Any, codec: Any = None, **settings: Any) -> AsyncIterator[tuple[GatewaySession, Any]]:
    """Open gateway, session and client; yields the session and a function that asks the policy."""
    async with open_gateway(engine, codec, **settings) as gateway:
        session = open_session(gateway)
        async with client_of(gateway, session) as client:

            async def ask(messages: list[Any], **options: Any) -> Any:
                return await client.chat.completions.create(model="any", messages=messages, **options)

            yield session, ask

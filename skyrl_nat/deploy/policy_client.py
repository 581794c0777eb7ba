"""Asking a served policy over HTTP: token ids in, token ids out, as in training.

What fails because of the infrastructure is asked again after a while; what the server refuses is not.
"""

import asyncio
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

import aiohttp

from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.data.planner.refusals import read_refusal
from skyrl_nat.errors import EngineError
from skyrl_nat.rollouts.chat import AnyMessage, ChatCodec
from skyrl_nat.rollouts.policy_access import Attempt, PolicyAccess
from skyrl_nat.strict_json import parse_json
from skyrl_nat.types import Completion, FinishReason, GenerationRequest

RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504})
"""HTTP status of what may go well when it is asked again."""
MAX_DELAY_S = 30.0
_FINISH = {"length": FinishReason.LENGTH, "stop": FinishReason.STOP}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a policy is served, and how patiently it is asked."""

    base_url: str
    """Of OpenAI's protocol, `/v1` included."""
    model: str
    api_key_env: str = ""
    """Name of the environment variable that holds the key; empty sends none."""
    timeout_s: float = 600.0
    """Of one call."""
    max_tries: int = 4
    first_delay_s: float = 0.5
    """Before the second try; doubled each time, with some chance."""
    stop_token_ids: tuple[int, ...] = ()
    """End tokens besides the tokenizer's own."""


class PolicyClient:
    """One served model; an async context manager. Its `generate` is what players ask."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Keep where it is; nothing is asked yet."""
        self.endpoint = endpoint
        self.num_retries = 0
        """Calls that were made again."""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the connections."""
        return self.opened()

    def opened(self) -> Self:
        """Open the connections, on the running loop; `close` is then the caller's."""
        key = os.environ.get(self.endpoint.api_key_env, "") if self.endpoint.api_key_env else ""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limit = aiohttp.ClientTimeout(total=self.endpoint.timeout_s)
        self._session = aiohttp.ClientSession(headers=headers, timeout=limit)
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections; safe to call twice."""
        if self._session is not None:
            await self._session.close()

    async def models(self) -> list[str]:
        """Return the names that the server lists.

        Raises:
            EngineError: There is no such answer.
        """
        found = await self.call("GET", "/models")
        try:
            return [str(item["id"]) for item in found["data"]]
        except (KeyError, TypeError) as error:
            raise self._unlike("a list of models", found) from error

    async def generate(self, request: GenerationRequest) -> Completion:
        """Sample one completion of exactly these tokens.

        Raises:
            EngineError: There is no answer, or none with token ids and log-probs.
        """
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "prompt": request.prompt_token_ids,
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "logprobs": 0,
            "return_token_ids": True,
            "add_special_tokens": False,
            "skip_special_tokens": False,
            "include_stop_str_in_output": True,
        }
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if self.endpoint.stop_token_ids:
            body["stop_token_ids"] = list(self.endpoint.stop_token_ids)
        answer = await self.call("POST", "/completions", body)
        return self._completion(answer, request.prompt_token_ids)

    async def prompt_ids(self, messages: Sequence[AnyMessage]) -> list[int]:
        """Return the tokens that the server's own chat endpoint makes of messages."""
        answer = await self.call(
            "POST",
            "/chat/completions",
            {"model": self.endpoint.model, "messages": list(messages), "max_tokens": 1, "return_token_ids": True},
        )
        found = answer.get("prompt_token_ids") if isinstance(answer, dict) else None
        if not isinstance(found, list) or not _are_ids(found):
            raise self._unlike("prompt_token_ids of a chat", answer)
        return found

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON of an answer; asks again where the infrastructure failed.

        Raises:
            EngineError: The server refused, or failed at every try.
        """
        if self._session is None:
            raise EngineError("A policy's client must be open to be asked, this one is not. Use it in `async with`")
        attempt = 0
        while True:
            attempt += 1
            delay_s = self.endpoint.first_delay_s * 2 ** (attempt - 1) * random.uniform(0.75, 1.25)
            try:
                status, answer, asked_s = await self._once(self._session, method, path, body)
                if status == HTTPStatus.OK:
                    return answer
                failure, is_final = f"{status}: {str(answer)[:300]}", status not in RETRIED
                delay_s = max(delay_s, asked_s)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                failure, is_final = f"{type(error).__name__}: {error}", False
            if is_final or attempt >= self.endpoint.max_tries or delay_s > MAX_DELAY_S:
                raise EngineError(
                    f"{self.endpoint.base_url}{path} must answer for {self.endpoint.model}, after {attempt} of "
                    f"{self.endpoint.max_tries} tries: {failure}. See the server's log"
                )
            self.num_retries += 1
            await asyncio.sleep(delay_s)

    async def _once(self, session: aiohttp.ClientSession, method: str, path: str, body: Any) -> tuple[int, Any, float]:
        """Return status, JSON or text, and how many seconds the server wants to be left alone."""
        async with session.request(method, f"{self.endpoint.base_url}{path}", json=body) as response:
            data = await response.read()
            if response.status == HTTPStatus.OK:
                return response.status, parse_json(data), 0.0
            text = data.decode(errors="replace")
            return response.status, text, read_refusal(response.status, response.headers, text).delay_s

    def _completion(self, answer: Any, prompt: list[int]) -> Completion:
        try:
            [choice] = answer["choices"]
            ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            reason, seen = _FINISH.get(choice["finish_reason"]), choice.get("prompt_token_ids", prompt)
            is_word = isinstance(choice.get("stop_reason"), str)
        except (KeyError, TypeError, ValueError) as error:
            raise self._unlike("one completion with token_ids and log-probs", answer) from error
        if not _are_ids(ids) or reason is None or answer.get("model") != self.endpoint.model:
            raise self._unlike(f"token ids of the model {self.endpoint.model} and an end", answer)
        if seen is not None and seen != prompt:
            raise EngineError(
                f"{self.endpoint.base_url} must sample after the tokens that it was given, it used {len(seen)} tokens "
                f"in place of {len(prompt)}. Serve the model without additions to prompts"
            )
        return Completion(
            token_ids=ids,
            logprobs=[float(value) for value in logprobs],
            finish_reason=FinishReason.STOP_WORD if reason is FinishReason.STOP and is_word else reason,
            token_versions=[0] * len(ids),
        )

    def _unlike(self, what: str, found: Any) -> EngineError:
        return EngineError(
            f"{self.endpoint.base_url} must answer with {what}, got {str(found)[:200]}. Use vLLM or skyrl-nat deploy"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPolicy:
    """A served policy with the chat codec and the limits that it was trained with."""

    client: PolicyClient
    codec: ChatCodec
    config: RolloutConfig
    seed: int = 0

    def access(self) -> PolicyAccess:
        """Return what players of episodes ask."""
        return PolicyAccess(generate=self.client.generate, codec=self.codec, config=self.config, seed=self.seed)

    async def answer(self, messages: Sequence[AnyMessage], *, request_name: str = "answer", turn: int = 0) -> str:
        """Return the policy's next message, made of exactly the tokens that training would have given it.

        Raises:
            EngineError: The server did not answer.
        """
        attempt = Attempt(rollout_id=request_name, number=0, temperature=self.config.eval_temperature)
        completion = await self.access().ask(attempt, turn, self.codec.prompt_tokens(messages))
        return self.codec.decode(completion.token_ids)


def _are_ids(found: Any) -> bool:
    return isinstance(found, list) and all(type(item) is int for item in found)

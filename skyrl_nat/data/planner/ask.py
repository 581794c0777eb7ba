"""Asks a planner for JSON: waits for a turn, counts the call, checks the answer, asks again where that helps.

Whatever happens to one request is a result (`Answered`, `Blocked` or `Failed`) and the run goes on. What would happen
to all of them (a used-up budget or quota, a wrong key, a dead server) is raised, by this request and all that follow.
"""

import asyncio
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from skyrl_nat.config.planner import PlannerConfig
from skyrl_nat.data.planner.backends import Answer, open_backend
from skyrl_nat.data.planner.ledger import ABANDONED, ANSWERED, Ledger, estimate_tokens
from skyrl_nat.data.planner.limits import Limiter
from skyrl_nat.data.planner.parsing import Problem, ProblemKind, read_object
from skyrl_nat.data.planner.refusals import Billed, Refusal, RefusalKind
from skyrl_nat.data.planner.schema import reduce_schema
from skyrl_nat.errors import ConfigError, StoppedError


@dataclass(frozen=True, slots=True)
class Answered:
    """An object that keeps the full schema."""

    value: dict[str, Any]
    kind = "answered"


@dataclass(frozen=True, slots=True)
class Blocked:
    """The service would not answer this prompt, or had nothing to say."""

    reason: str
    kind = "blocked"


@dataclass(frozen=True, slots=True)
class Failed:
    """All tries are used up."""

    kind: RefusalKind | ProblemKind
    reason: str


Outcome = Answered | Blocked | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """One request, which may take several calls."""

    prompt: str
    schema: dict[str, Any]
    max_tokens: int
    temperature: float
    seed: int

    @property
    def prompt_tokens(self) -> int:
        """Estimate of its length."""
        return estimate_tokens(self.prompt) + estimate_tokens(json.dumps(self.schema))

    @property
    def most_tokens(self) -> int:
        """What one call uses at most."""
        return self.prompt_tokens + self.max_tokens

    def key(self, config: PlannerConfig) -> str:
        """Return its hash."""
        whole = {**asdict(self), "backend": str(config.backend), "model": config.model, "base_url": config.base_url}
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


class Planner:
    """One service, one ledger, any number of workers."""

    def __init__(self, config: PlannerConfig, folder: Path, *, limiter: Limiter | None = None) -> None:
        """Keep what to ask and where to remember it.

        Args:
            config: Section `planner`.
            folder: Gets the ledger; the same folder goes on where a killed run was.
            limiter: Replaces the one of the configuration.
        """
        self.outcomes: Counter[str] = Counter()
        """Kind of outcome -> requests."""
        self.num_replayed = 0
        """Answers taken from the ledger, which cost nothing now."""
        self.dropped: dict[str, None] = {}
        """Rules of schemas that the service was not told, in order; they are checked here."""
        self._config = config
        self._folder = folder
        self._limiter = limiter or Limiter(config.requests_per_minute, config.tokens_per_minute)
        self._slots = asyncio.Semaphore(config.concurrency)
        self._one_at_a_time: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._stopped: ConfigError | StoppedError | None = None
        self._failures_in_a_row = 0
        self._under_way: set[asyncio.Task[Answer | Refusal]] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open ledger and service.

        Raises:
            ConfigError: There is no key, or no SDK.
            DataError: The ledger is held by another process, or broken.
        """
        self._key = self._config.read_api_key()
        async with AsyncExitStack() as stack:
            self.ledger = Ledger(self._folder, self._config)
            stack.callback(self.ledger.close)
            self._backend = await stack.enter_async_context(open_backend(self._config, self._key))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for calls under way, whose answers are paid for and belong in the ledger, and close both."""
        self._stopped = self._stopped or StoppedError("a planner must be open to be asked, this one is closed")
        if self._under_way:
            await asyncio.wait(self._under_way)
        await self._stack.aclose()

    async def ask(
        self, prompt: str, schema: Mapping[str, Any], *, seed: int = 0, temperature: float | None = None
    ) -> Outcome:
        """Return the answer to a prompt, or what became of it.

        The same request is paid for once, in this process or an earlier one; another `seed` gives another answer.

        Args:
            prompt: The whole prompt.
            schema: JSON schema of the answer, an object.
            seed: Of the sampling.
            temperature: Of the sampling; None takes the configured one.

        Raises:
            StoppedError: The budget or the daily quota is used up, or the server is down.
            ConfigError: The service denies the request.
            DataError: The schema cannot be used.
        """
        self._check_running()
        reduced = reduce_schema(schema, self._config.backend)
        self.dropped |= dict.fromkeys(reduced.dropped)
        request = _Request(
            prompt=prompt,
            schema=reduced.schema,
            max_tokens=self._config.max_tokens,
            temperature=self._config.temperature if temperature is None else temperature,
            seed=seed,
        )
        try:
            outcome = await self._converse(request, schema)
        except (ConfigError, StoppedError) as error:
            self._stopped = self._stopped or error
            raise
        self.outcomes[outcome.kind] += 1
        return outcome

    def report(self) -> dict[str, Any]:
        """Return everything that was counted, for a file beside the output."""
        return {
            "model": self._config.model,
            "outcomes": dict(self.outcomes),
            "replayed": self.num_replayed,
            "ledger": asdict(self.ledger.totals),
            "dropped_rules": list(self.dropped),
        }

    async def _converse(self, first: _Request, schema: Mapping[str, Any]) -> Outcome:
        """Ask, and ask again with a higher limit or with what was wrong."""
        request, wrong, repairs = first, list[str](), 0
        while True:
            answer = await self._fetch(request)
            if isinstance(answer, Refusal):
                return Failed(answer.kind, answer.message)
            if answer.block_reason or not (answer.text.strip() or answer.is_cut):
                return Blocked(answer.block_reason or "empty answer")
            found = read_object(answer, schema)
            if not isinstance(found, Problem):
                return Answered(found)
            is_cut, ceiling = found.kind is ProblemKind.cut, self._config.max_tokens_ceiling
            if repairs == self._config.max_repairs or (is_cut and request.max_tokens == ceiling):
                return Failed(found.kind, found.message)
            repairs += 1
            if is_cut:
                request = replace(request, max_tokens=min(2 * request.max_tokens, ceiling))
            else:
                wrong.append(f"Answer {len(wrong) + 1} was refused: {found.message}")
                request = replace(request, prompt="\n\n".join((first.prompt, *wrong, "Answer with one JSON object.")))

    async def _fetch(self, request: _Request) -> Answer | Refusal:
        """Return the answer from the ledger, or call the service until it answers or tries run out."""
        key = request.key(self._config)
        async with self._one_at_a_time[key]:
            if known := self.ledger.answer(key):
                self.num_replayed += 1
                return known
            attempt = 0
            while True:
                async with self._slots:
                    result = await self._call(request, key)
                if isinstance(result, Answer):
                    self._failures_in_a_row = 0
                    return result
                self._check_final(result)
                attempt += 1
                if attempt == self._config.max_tries or result.kind is RefusalKind.denied:
                    self._count_failure(result)
                    return result
                await self._limiter.back_off(attempt - 1, result.delay_s, is_shared=result.concerns_all)

    async def _call(self, request: _Request, key: str) -> Answer | Refusal:
        """Make one call, which goes on to its end even if nobody waits for it any more."""
        await self._limiter.acquire(request.most_tokens)
        self._check_running()
        call = self.ledger.open_call(key, request.prompt_tokens, request.max_tokens)
        task = asyncio.create_task(self._complete(request, call))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def _complete(self, request: _Request, call: int) -> Answer | Refusal:
        """Make the call with this number in the ledger, and enter what came of it."""
        try:
            result = await self._backend.complete(
                request.prompt,
                request.schema,
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                seed=request.seed,
            )
        except BaseException:
            self.ledger.fail_call(call, ABANDONED, Billed.everything)
            raise
        if isinstance(result, Refusal):
            message = result.message.replace(self._key, "***") if self._key else result.message
            result = replace(result, message=message)
            used = self.ledger.fail_call(call, result.kind, result.billed, message)
        else:
            used = self.ledger.close_call(call, result)
        self._limiter.give_back(request.most_tokens - used)
        return result

    def _check_running(self) -> None:
        if self._stopped:
            raise type(self._stopped)(str(self._stopped))

    def _check_final(self, refusal: Refusal) -> None:
        """Stop for what no other request would survive either.

        A request that is called wrong is only itself wrong where the service has answered others.
        """
        saved = f"What was answered is in {self.ledger.path}"
        has_answered = self.ledger.totals.results[ANSWERED] > 0
        if refusal.kind is RefusalKind.denied and not (refusal.may_be_the_prompt and has_answered):
            raise ConfigError(
                f"the planner's service must accept its requests, it said {refusal.message}. Check the key in "
                f"${self._config.api_key_env}, planner.model = {self._config.model} and planner.base_url. {saved}"
            )
        if refusal.kind is RefusalKind.exhausted:
            raise StoppedError(
                f"the planner's quota must not be used up, the service said {refusal.message}. "
                f"{saved}; start again when the quota is renewed"
            )
        if refusal.delay_s > self._config.max_wait_s:
            raise StoppedError(
                f"a planner's service may ask for a delay of planner.max_wait_s = {self._config.max_wait_s:g} s, it "
                f"asked for {refusal.delay_s:g} s. {saved}; start again later"
            )

    def _count_failure(self, refusal: Refusal) -> None:
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= self._config.max_failures_in_a_row:
            raise StoppedError(
                f"fewer than planner.max_failures_in_a_row = {self._config.max_failures_in_a_row} requests may fail "
                f"one after the other, the last one: {refusal.message}. What was answered is in {self.ledger.path}; "
                "start again when the server is well"
            )

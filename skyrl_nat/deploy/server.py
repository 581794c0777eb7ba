"""Servers of models as processes: ready only after a real completion, supervised, changed with a way back."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from skyrl_nat.deploy.log import say
from skyrl_nat.deploy.policy_client import Endpoint, PolicyClient
from skyrl_nat.engines.reaper import Reaper
from skyrl_nat.errors import EngineError, SkyRLNatError
from skyrl_nat.json_lines import open_lines
from skyrl_nat.types import GenerationRequest, SamplingParams

POLL_S, MOST_POLL_S = 0.2, 2.0
"""How often a server is looked at; less and less often while it starts, which takes what the machine has."""
TAIL_LINES = 15
TAIL_BYTES = 16_384
STOP_S = 15.0
"""What a server has to end after SIGTERM, before it is killed with all that it started."""
Check = Callable[[PolicyClient], Awaitable[None]]
"""Raises where a server must not get the traffic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """How a server is started and asked."""

    command: tuple[str, ...]
    endpoint: Endpoint
    """Of the model that must answer before the server counts as ready."""
    log: Path
    """Gets the server's output."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """On top of this process's own."""
    start_timeout_s: float = 600.0
    probation_s: float = 10.0
    """How long a server must go on answering after its first completion before it gets the traffic."""
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What is served, for people and for the record of the deployment."""


class ModelServer:
    """One server process."""

    def __init__(self, plan: ServerPlan) -> None:
        """Keep the plan; nothing is started yet."""
        self.plan = plan
        self._process: asyncio.subprocess.Process | None = None
        self._log_start = 0
        self._reaper: Reaper | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process and wait until the named model has answered.

        Raises:
            EngineError: It ended, or did not answer in time; the message holds the end of its log.
        """
        plan = self.plan
        with open_lines(plan.log) as log:
            self._log_start = log.seek(0, os.SEEK_END)
            self._process = await asyncio.create_subprocess_exec(
                *plan.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **plan.environment},
                start_new_session=True,
            )
        with contextlib.suppress(psutil.NoSuchProcess):  # the wait below says that it ended
            self._reaper = Reaper([psutil.Process(self._process.pid)])
        say("model server starts", pid=self._process.pid, **plan.about)
        try:
            await self._wait_until_ready(time.monotonic() + plan.start_timeout_s)
        except BaseException:
            await self.stop()
            raise

    async def prove(self) -> None:
        """Ask the named model for one token.

        Raises:
            EngineError: The server does not list it, or it gives no completion.
        """
        async with PolicyClient(replace(self.plan.endpoint, max_tries=1)) as client:
            await prove_model(client)

    async def stay(self, seconds: float) -> None:
        """Pass where the server lives and answers for so long.

        Raises:
            EngineError: It ended, or answers no more.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(POLL_S, left))
            self._require_alive()
        await self.prove()

    async def stop(self) -> None:
        """End the process and all that it started; safe to call twice."""
        process = self._process
        if process is None:
            return
        self._process = None
        try:
            if process.returncode is None:
                _signal(process.pid, signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), STOP_S)
        finally:
            # Its workers may outlive it.
            _signal(process.pid, signal.SIGKILL)
            if self._reaper is not None:
                self._reaper.dismiss()
        await process.wait()

    def tail(self) -> str:
        """Return the last lines of what the server has printed since it was started."""
        try:
            with self.plan.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError as error:
            return f"no log: {error}"
        return "\n".join(lines[-TAIL_LINES:]) or "it printed nothing"

    async def _wait_until_ready(self, deadline: float) -> None:
        last: EngineError | None = None
        pause_s = POLL_S
        while time.monotonic() < deadline:
            self._require_alive()
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await self.prove()
                return
            except EngineError as error:
                last = error
            except TimeoutError:
                break
            await asyncio.sleep(pause_s)
            pause_s = min(1.5 * pause_s, MOST_POLL_S)
        raise EngineError(
            f"The server must give a completion of {self.plan.endpoint.model} within {self.plan.start_timeout_s:g} s, "
            f"it did not: {last or 'no answer'}. Mend it or raise engine.start_timeout_s; its log {self.plan.log} ends "
            f"with:\n{self.tail()}"
        )

    def _require_alive(self) -> None:
        code = self._process.returncode if self._process else None
        if not self.is_alive:
            raise EngineError(
                f"The server of {self.plan.endpoint.model} must run, it ended with {code}. Mend what its log "
                f"{self.plan.log} says:\n{self.tail()}"
            )


class Deployment:
    """The server that has the traffic, and the change to another one."""

    def __init__(self, *, max_restarts: int = 3, restart_delay_s: float = 1.0, stable_s: float = 300.0) -> None:
        """Begin with none.

        Args:
            max_restarts: Of a server that ends by itself, one after the other.
            restart_delay_s: Before the first; doubled each time.
            stable_s: A server that has lived for so long is new to this count.
        """
        self._max_restarts = max_restarts
        self._restart_delay_s = restart_delay_s
        self._stable_s = stable_s
        self._num_restarts, self._since = 0, 0.0
        self._changing = asyncio.Lock()
        self.current: ModelServer | None = None
        self.previous: ServerPlan | None = None
        """What had the traffic before: the way back where the current one cannot be started again."""

    async def switch(self, plan: ServerPlan, check: Check) -> None:
        """Start a server and give it the traffic once it has shown that it deserves it; the old one then ends.

        Args:
            plan: Of the new server; both run for a while.
            check: Is asked before.

        Raises:
            SkyRLNatError: The new one failed; the old one has the traffic as before.
        """
        async with self._changing:
            server = ModelServer(plan)
            try:
                await server.start()
                async with PolicyClient(plan.endpoint) as client:
                    await check(client)
                await server.stay(plan.probation_s)
            except BaseException as error:
                await server.stop()
                kept = dict(self.current.plan.about) if self.current else None
                say("switch refused", reason=str(error), kept=kept, **plan.about)
                raise
            old, self.current = self.current, server
            self._num_restarts, self._since = 0, time.monotonic()
            say("traffic switched", **plan.about)
            if old is not None:
                self.previous = old.plan
                await old.stop()

    async def supervise(self) -> None:
        """Start a server again that ends by itself, and go back to the one before where that does not help.

        Raises:
            EngineError: Neither can be had.
        """
        while True:
            await asyncio.sleep(POLL_S)
            if self._changing.locked() or self.current is None or self.current.is_alive:
                continue
            async with self._changing:
                await self._replace(self.current)

    async def _replace(self, dead: ModelServer) -> None:
        """Start a dead server again, or the one before it; one that ends soon again and again is not tried for ever."""
        say("model server ended", tail=dead.tail(), **dead.plan.about)
        await dead.stop()
        if time.monotonic() - self._since > self._stable_s:
            self._num_restarts = 0
        failure = "it ended soon after each start"
        plans = [dead.plan] * (self._max_restarts - self._num_restarts)
        for plan in [*plans, *([self.previous] * self._max_restarts if self.previous else [])]:
            await asyncio.sleep(self._restart_delay_s * 2**self._num_restarts)
            self._num_restarts = 0 if plan is self.previous else self._num_restarts + 1
            try:
                self.current = await self._restarted(plan)
            except SkyRLNatError as error:
                failure = str(error)
                continue
            say("model server restarted", is_rollback=plan is self.previous, **plan.about)
            self._since = time.monotonic()
            if plan is self.previous:
                self.previous = None
            return
        raise EngineError(f"A model server that ends must start again, none did: {failure}")

    async def _restarted(self, plan: ServerPlan) -> ModelServer:
        server = ModelServer(plan)
        try:
            await server.start()
            await server.stay(plan.probation_s)
        except BaseException:
            await server.stop()
            raise
        return server

    async def close(self) -> None:
        """End the server; safe to call twice."""
        if self.current is not None:
            await self.current.stop()


async def prove_model(client: PolicyClient) -> None:
    """Ask the named model for one token: neither a word of health nor a list of models proves that it is there.

    Raises:
        EngineError: The server does not list it, or it gives no completion.
    """
    names = await client.models()
    if client.endpoint.model not in names:
        raise EngineError(
            f"{client.endpoint.base_url} must list the model {client.endpoint.model}, it lists {names}. Check what is "
            "served"
        )
    asked = GenerationRequest(
        request_id="ready", prompt_token_ids=[1, 1], sampling=SamplingParams(max_new_tokens=1, temperature=0.0)
    )
    completion = await client.generate(asked)
    if len(completion.token_ids) != 1:
        raise EngineError(
            f"{client.endpoint.model} must sample 1 token, it sampled {len(completion.token_ids)}. See its log"
        )


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)

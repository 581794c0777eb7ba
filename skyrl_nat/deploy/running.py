"""A whole deployment: model server, checks before its traffic, pipeline and front; all end in order."""

import asyncio
import contextlib
import json
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller.opening import load_held_out
from skyrl_nat.data.making.maker import MadeStore, Maker
from skyrl_nat.data.planner.ask import Planner
from skyrl_nat.data.replacing import replacing
from skyrl_nat.deploy.admission import Admission
from skyrl_nat.deploy.app import Front, make_app, require_safe
from skyrl_nat.deploy.feedback import AGENTS
from skyrl_nat.deploy.flag import FlagFile, TrainedSwitch
from skyrl_nat.deploy.gate import NUM_PROMPTS, check_adapter, check_difference
from skyrl_nat.deploy.log import say, serving
from skyrl_nat.deploy.material import BASE_NAME, Material, prepared, server_plan
from skyrl_nat.deploy.pipeline import AgentPipeline, AgentRequest, PipelineSettings, Progress
from skyrl_nat.deploy.policy_client import PolicyClient, TrainedPolicy
from skyrl_nat.deploy.prompt_check import check_prompts, first_dialogues
from skyrl_nat.deploy.server import Deployment
from skyrl_nat.errors import ConfigError, DeadlineError, EngineError, SkyRLNatError
from skyrl_nat.rollouts.chat import ChatCodec

CURRENT = "current.json"
FLAG = "flag.json"
LOG = "log.jsonl"
PLANNER = "planner"
MADE = "made.jsonl"
SHUTDOWN_S = 20.0
"""What requests under way have to end once the service is told to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is to be served, as it was asked for."""

    what: str
    checkpoint: str = "latest"
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of a service that creates agents."""

    max_running: int = 4
    max_waiting: int = 16
    deadline_s: float = 900.0
    policy_timeout_s: float = 600.0
    probation_s: float = 10.0
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)

    def __post_init__(self) -> None:
        numbers = (self.max_running, self.deadline_s, self.policy_timeout_s)
        if min(numbers) <= 0 or self.max_waiting < 0 or self.probation_s < 0:
            raise ConfigError(f"Limits of a deployment must be above 0, got {asdict(self)}. Raise those that are not")


@contextlib.asynccontextmanager
async def deployed(subject: Subject, folder: Path, *, probation_s: float) -> AsyncIterator["Served"]:
    """Serve a subject; where it fails, what the folder served before, and only that failing raises.

    Args:
        subject: What is wanted.
        folder: Of the deployment.
        probation_s: How long a server must answer before it gets the traffic.

    Raises:
        SkyRLNatError: Neither can be served.
    """
    before = _recorded(folder)
    candidates = [subject, *([before] if before not in (None, subject) else [])]
    deployment = Deployment()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(deployment.close)
        for number, candidate in enumerate(candidates):
            try:
                material = await _switched(candidate, folder, deployment, stack, probation_s)
            except SkyRLNatError as error:
                if number + 1 == len(candidates):
                    raise
                _warn(f"{candidate.what} cannot be served: {error}\nGoing back to {candidates[number + 1].what}")
                continue
            _record(folder, candidate)
            yield Served(material, deployment)
            return


@dataclass(frozen=True, slots=True)
class Served:
    """What has the traffic."""

    material: Material
    deployment: Deployment

    @property
    def url(self) -> str:
        """Where the model answers now; empty where none is served."""
        server = self.deployment.current
        return server.plan.endpoint.base_url if server else ""

    def describe(self) -> dict[str, Any]:
        """Return what is served, for health checks."""
        server = self.deployment.current
        return {"is_alive": server is not None and server.is_alive, **(server.plan.about if server else {})}


async def serve_model(subject: Subject, folder: Path, *, probation_s: float) -> None:
    """Serve a model until this is cancelled.

    Raises:
        SkyRLNatError: It cannot be served, or not any more.
    """
    async with deployed(subject, folder, probation_s=probation_s) as served:
        _tell({"model_url": served.url, **served.describe()})
        await served.deployment.supervise()


async def serve_agents(subject: Subject, folder: Path, limits: Limits, *, host: str, port: int, key: str) -> None:
    """Serve agents until this is cancelled.

    Raises:
        SkyRLNatError: The model cannot be served, or the address cannot be had.
    """
    require_safe(host, key)
    async with deployed(subject, folder, probation_s=limits.probation_s) as served:
        supervising = asyncio.create_task(_supervised(served.deployment))
        try:
            async with opened_pipeline(served, folder, limits) as (pipeline, switch):
                front = Front(
                    create=pipeline.create,
                    switch=switch,
                    admission=Admission(max_running=limits.max_running, max_waiting=limits.max_waiting),
                    folder=folder,
                    deadline_s=limits.deadline_s,
                    key=key,
                    describe_model=served.describe,
                )
                async with _listening(front, host, port) as address:
                    _tell({"url": address, "model_url": served.url, **served.describe()})
                    await asyncio.Event().wait()
        finally:
            supervising.cancel()
            await asyncio.gather(supervising, return_exceptions=True)


async def create_one(subject: Subject, folder: Path, limits: Limits, request: AgentRequest) -> dict[str, Any]:
    """Serve a model, create one agent, and return its record.

    Raises:
        SkyRLNatError: The model cannot be served, or the agent not be created.
    """
    agent_id, progress = secrets.token_hex(16), Progress()
    async with (
        deployed(subject, folder, probation_s=limits.probation_s) as served,
        opened_pipeline(served, folder, limits) as (pipeline, _),
    ):
        limit = asyncio.timeout(limits.deadline_s)
        with serving(agent_id):
            try:
                async with limit:
                    record = await pipeline.create(request, agent_id, progress)
            except TimeoutError as error:
                if not limit.expired():
                    raise
                raise DeadlineError(
                    f"An agent must be there within {limits.deadline_s:g} s, the phase {progress.phase} was under way. "
                    "Raise --deadline"
                ) from error
    return {"folder": str(folder / AGENTS / agent_id), **record}


@contextlib.asynccontextmanager
async def opened_pipeline(
    served: Served, folder: Path, limits: Limits
) -> AsyncIterator[tuple[AgentPipeline, TrainedSwitch]]:
    """Give the pipeline of a deployment, and who is asked.

    Raises:
        ConfigError: The policy was trained for another family, or the planner has no key.
    """
    config = served.material.config
    _require_family(config)
    codec = ChatCodec.from_folder(served.material.model)
    switch = TrainedSwitch(
        FlagFile(folder / FLAG), timeout_s=limits.policy_timeout_s, max_concurrent=limits.max_running
    )
    maker = Maker(config.environment, MadeStore(folder / MADE), num_workers=config.environment.sandbox.num_servers)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, maker.close)
        planner = await stack.enter_async_context(Planner(config.planner, folder / PLANNER))
        clients = await stack.enter_async_context(_Clients(served.deployment))
        pipeline = AgentPipeline(
            planner,
            maker,
            lambda: TrainedPolicy(client=clients.current(), codec=codec, config=config.rollout, seed=config.seed),
            switch,
            config.environment,
            limits.pipeline,
            folder,
        )
        stack.callback(pipeline.close)
        yield pipeline, switch


class _Clients:
    """The client of the server that has the traffic; another one after a change."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._clients: dict[str, PolicyClient] = {}

    async def __aenter__(self) -> "_Clients":
        return self

    async def __aexit__(self, *exception: object) -> None:
        for client in self._clients.values():
            await client.close()

    def current(self) -> PolicyClient:
        server = self._deployment.current
        if server is None:
            raise EngineError("A model must be served to be asked, none is. Deploy one")
        endpoint = server.plan.endpoint
        if endpoint.base_url not in self._clients:
            self._clients[endpoint.base_url] = PolicyClient(endpoint).opened()
        return self._clients[endpoint.base_url]


async def _switched(
    subject: Subject, folder: Path, deployment: Deployment, stack: contextlib.AsyncExitStack, probation_s: float
) -> Material:
    """Give a subject the traffic; what was made for it stays until the stack is closed."""
    found = await stack.enter_async_context(prepared(subject.what, subject.checkpoint, subject.overrides, folder))
    if found.adapter is not None:
        check_adapter(found.adapter, found.model)

    async def check(client: PolicyClient) -> None:
        codec = ChatCodec.from_folder(found.model)
        dialogues = _dialogues(found.config, codec)
        num_prompts = await check_prompts(client, codec, dialogues)
        say("prompts are those of training", number=num_prompts)
        if found.adapter is not None:
            prompts = [codec.prompt_tokens(messages) for messages in dialogues]
            say("adapter is in use", difference=await check_difference(client, BASE_NAME, prompts))

    await deployment.switch(server_plan(found, folder, probation_s=probation_s), check)
    return found


def _dialogues(config: RunConfig, codec: ChatCodec) -> list[Any]:
    """Return the beginnings of held-out tasks that leave room for an answer."""
    tasks = load_held_out(config).validation_tasks
    found = first_dialogues(tasks, config.environment, max_turns=config.rollout.max_turns)
    room = config.rollout.max_total_tokens - 2
    fitting = [messages for messages in found if len(codec.prompt_tokens(messages)) < room]
    if not fitting:
        raise ConfigError(
            f"rollout.max_total_tokens must leave room after some prompt, {config.rollout.max_total_tokens} leaves "
            f"none after those of {len(found)} held-out tasks. Raise it"
        )
    return fitting[:NUM_PROMPTS]


async def _supervised(deployment: Deployment) -> None:
    """Keep a server there; without one the front goes on with the code behind the policy."""
    try:
        await deployment.supervise()
    except EngineError as error:
        _warn(f"{error}. Agents are written by the planner alone from now on")


@contextlib.asynccontextmanager
async def _listening(front: Front, host: str, port: int) -> AsyncIterator[str]:
    runner = web.AppRunner(make_app(front), handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise ConfigError(
                f"--host and --port must be an address to listen on, found: {error}. Choose another"
            ) from error
        name = f"[{host}]" if ":" in host else host
        yield f"http://{name}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _require_family(config: RunConfig) -> None:
    if config.environment.family != "nat_agent":
        raise ConfigError(
            f"environment.family must be nat_agent for agents to be created, got {config.environment.family}. Deploy a "
            "policy that was trained for it"
        )


def _recorded(folder: Path) -> Subject | None:
    path = folder / CURRENT
    folder.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    return Subject(what=data["what"], checkpoint=data["checkpoint"], overrides=tuple(data["overrides"]))


def _record(folder: Path, subject: Subject) -> None:
    with replacing(folder / CURRENT) as part:
        part.write_text(json.dumps(asdict(subject), indent=1) + "\n", encoding="utf-8")


def _tell(found: dict[str, Any]) -> None:
    """Say on the standard output that the service is ready, as one line for programs."""
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def _warn(text: str) -> None:
    sys.stderr.write(f"skyrl-nat: {text}\n")
    sys.stderr.flush()


def subject_of(what: str, checkpoint: str, overrides: Sequence[str]) -> Subject:
    """Return a subject whose path holds wherever the deployment is started again."""
    path = Path(what)
    return Subject(
        what=str(path.resolve()) if path.exists() else what, checkpoint=checkpoint, overrides=tuple(overrides)
    )

"""Starting all workers of a run in their slots, and ending them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ray.actor import ActorHandle
from ray.util.placement_group import PlacementGroup

from skyrl_nat.cluster.actors import spawn
from skyrl_nat.cluster.clients import RemoteEngine, RemoteEnvironments, RemoteRewards
from skyrl_nat.cluster.group import ActorGroup, BaseModelCalls, together
from skyrl_nat.cluster.nodes import Nodes
from skyrl_nat.cluster.placement import PlacementPlan, Slot, plan_placement, require_own_gpus
from skyrl_nat.cluster.session import alive_nodes, ray_session, reserved
from skyrl_nat.config.cluster import Device, Strategy
from skyrl_nat.config.rollout import EngineKind
from skyrl_nat.config.run import RunConfig
from skyrl_nat.environments.judge import has_validator
from skyrl_nat.monitoring import spans
from skyrl_nat.monitoring.usage import Usage
from skyrl_nat.weight_sync.base import WorkerCalls

POLICIES = {
    Strategy.fsdp2: "skyrl_nat.workers.policy:PolicyWorker",
    Strategy.deepspeed: "skyrl_nat.workers.zero3_workers:Zero3PolicyWorker",
}
REFERENCES = {
    Strategy.fsdp2: "skyrl_nat.workers.reference:ReferenceWorker",
    Strategy.deepspeed: "skyrl_nat.workers.zero3_workers:Zero3ReferenceWorker",
}
ENGINES = {
    EngineKind.vllm: "skyrl_nat.engines.vllm:VllmEngine",
    EngineKind.hf: "skyrl_nat.engines.hf:HfEngine",
    EngineKind.gguf: "skyrl_nat.engines.gguf:GgufEngine",
}
VALIDATION_DEADLINE_IN_JOBS = 12
"""A validation may start servers, run the ladder, the package's own tests and its MCP script before it counts as
stuck: a slow answer gets its verdict, not a deadline."""
WORKERS_S = 15.0
"""For all workers to end their children in order; what is left then is killed with the session."""


@dataclass(slots=True, kw_only=True)
class Topology:
    """All actors of a run."""

    plan: PlacementPlan
    policy: ActorGroup
    reference: WorkerCalls | None
    engines: ActorGroup
    engine_clients: list[RemoteEngine]
    environments: RemoteEnvironments
    rewards: RemoteRewards | None
    """None where the family's own step rewards count."""
    groups: list[ActorGroup]
    """All of the above that have actors of their own."""
    nodes: Nodes
    lost_nodes: list[str] = field(default_factory=list[str])
    """Names."""
    lost_engines: list[int] = field(default_factory=list[int])
    """Ranks that are given up."""
    starter: "_Starter"

    async def usage(self) -> dict[str, list[Usage]]:
        """Ask all that compute what they did since the last call, by role and rank; who is away did nothing."""
        computing = [group for group in self.groups if group.role in ("policy", "reference", "engine")]
        answers = await asyncio.gather(*(_usage(group) for group in computing))
        return {group.role: usages for group, usages in zip(computing, answers, strict=True)}

    async def restart_engine(self, rank: int) -> None:
        """Put a new engine in the place of one; it has the starting model's weights and is not called yet."""

        async def restart() -> None:
            await self.engines.restart(rank, self.starter.config.cluster.start_timeout_s)
            await self.engines.call_one(rank, "start")

        await self.nodes.hold(self.starter.slots["engine", rank].node, f"engine {rank}", restart())

    async def restart_policy(self) -> None:
        """Start the ranks of policy and reference anew, with the starting model."""
        limit = self.starter.config.cluster.start_timeout_s
        groups = [group for group in self.groups if group.role in ("policy", "reference")]
        slots = self.starter.slots
        await together(
            *(
                self.nodes.hold(slots["policy", rank].node, f"{group.role} {rank}", group.restart(rank, limit))
                for group in groups
                for rank in group.ranks
            )
        )
        await together(*(self.starter.build(group) for group in groups))

    def members(self, bundle: int) -> list[tuple[ActorGroup, int]]:
        """Return the workers on the node of a bundle."""
        return [
            (group, rank)
            for group in self.groups
            for rank in group.identities
            if self.starter.slots[place_of(group.role), rank].node == bundle
        ]

    async def move(self, group: ActorGroup, rank: int, bundle: int) -> None:
        """Start an environment or reward worker anew on the node of another bundle; it is not called meanwhile."""
        slots = self.starter.slots
        slots[group.role, rank] = replace(slots[group.role, rank], node=bundle)
        group.leave_out(rank)
        await group.restart(rank, self.starter.config.cluster.start_timeout_s)
        group.take_in(rank)


def place_of(role: str) -> str:
    """Return the role whose slots a role has: the reference's are the policy's."""
    return "policy" if role == "reference" else role


async def _usage(group: ActorGroup) -> list[Usage]:
    calls = {rank: asyncio.ensure_future(group.call_one(rank, "usage")) for rank in group.ranks}
    answers = dict(zip(calls, await asyncio.gather(*calls.values(), return_exceptions=True), strict=True))
    for answer in answers.values():
        if isinstance(answer, BaseException) and group.role != "engine":
            raise answer
    return [
        found if isinstance(found := answers.get(rank), Usage) else Usage(intervals=[]) for rank in group.identities
    ]


@contextlib.asynccontextmanager
async def start_topology(
    config: RunConfig, model_path: Path, total_steps: int, *, is_playing: bool = True
) -> AsyncIterator[Topology]:
    """Start Ray and all workers; on leaving, end them.

    Args:
        config: The run.
        model_path: Local folder of the model.
        total_steps: Optimizer steps of the run, for the learning-rate schedule.
        is_playing: False starts policy and reference alone, each in the place that it has in the whole run.

    Raises:
        ConfigError: If the placement does not fit the nodes.
        WorkerError, EngineError, DeadlineError: If a worker does not come up.
    """
    with ray_session(config.cluster):
        nodes = await alive_nodes(config.cluster)
        plan = plan_placement(config.cluster, nodes, is_overlapped=config.trainer.staleness > 0)
        if not is_playing:
            plan = replace(plan, slots=tuple(plan.of_role("policy")))
        async with reserved(plan, config.cluster.start_timeout_s) as bundle:
            starter = _Starter(config, plan, bundle, model_path, total_steps)
            topology = await starter.start()
            try:
                yield topology
            finally:
                await _shut_down(topology)


async def _shut_down(topology: Topology) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WORKERS_S):
            for group in topology.groups if spans.environment() else ():
                with contextlib.suppress(Exception):
                    await group.call_hosts("flush_traces")
            for group, method in ((topology.engines, "shutdown"), (topology.policy, "close")):
                with contextlib.suppress(Exception):
                    await group.call_all(method)
    await asyncio.gather(*(group.close() for group in topology.groups))


class _Starter:
    """Builds the groups of one topology."""

    def __init__(
        self,
        config: RunConfig,
        plan: PlacementPlan,
        bundle: PlacementGroup,
        model_path: Path,
        total_steps: int,
    ) -> None:
        self.config = config
        self._plan = plan
        self._bundle = bundle
        self._model_path = str(model_path)
        self._total_steps = total_steps
        self.slots = {(slot.role, slot.rank): slot for slot in plan.slots}
        """Where everyone is to be, by role and rank."""

    async def start(self) -> Topology:
        config = self.config
        strategy = config.cluster.strategy
        policy = self._policy_group("policy", POLICIES[strategy], self._policy_arguments())
        own_reference = None
        if config.algorithm.needs_reference and not config.model.lora.rank:
            own_reference = self._policy_group("reference", REFERENCES[strategy], self._reference_arguments())
        engines = self._engine_group()
        environments = self._cpu_group(
            "environment",
            "skyrl_nat.environments.worker:EnvironmentWorker",
            {
                "family": config.environment.family,
                "config": config.environment,
                "max_turns": config.rollout.max_turns,
            },
        )
        rewards = self._reward_group()
        groups = [group for group in (policy, own_reference, engines, environments, rewards) if group is not None]
        limit = config.cluster.start_timeout_s
        await together(*(group.wait_ready(limit) for group in groups))
        if config.cluster.device is Device.cuda:
            require_own_gpus("policy", policy.identities, 1)
            require_own_gpus("engine", engines.identities, config.cluster.num_engines_per_gpu)
        models = [group for group in (policy, own_reference) if group is not None]
        await together(self._start_engines(engines), *(self.build(group) for group in models))
        return Topology(
            plan=self._plan,
            policy=policy,
            reference=self._reference(policy, own_reference),
            engines=engines,
            engine_clients=[
                RemoteEngine(engines, rank, config.engine.request_timeout_s) for rank in range(engines.size)
            ],
            environments=RemoteEnvironments(environments),
            rewards=None if rewards is None else RemoteRewards(rewards),
            groups=groups,
            nodes=Nodes(self._bundle, config.recovery.node_timeout_s),
            starter=self,
        )

    def _reference(self, policy: ActorGroup, own: ActorGroup | None) -> WorkerCalls | None:
        """Return who answers for the reference: with LoRA the policy itself, without its adapters."""
        if own is None and self.config.algorithm.needs_reference:
            return BaseModelCalls(policy)
        return own

    async def _start_engines(self, engines: ActorGroup) -> None:
        """Start engines that share a GPU one after the other: each looks how much of its memory is left."""
        places = max(1, engines.size // self.config.cluster.num_engines_per_gpu)
        for first in range(0, engines.size, places):
            ranks = range(first, first + places)
            await asyncio.gather(*(engines.call_one(rank, "start") for rank in ranks))

    async def build(self, group: ActorGroup) -> None:
        """Join the ranks of a group and load its model."""
        address, port = await group.rendezvous()
        timeout_s = self.config.cluster.call_timeout_s
        await group.call_each(
            "init_process_group", [(rank, group.size, address, port, timeout_s) for rank in range(group.size)]
        )
        await group.call_all("build")

    def _policy_arguments(self) -> dict[str, Any]:
        config = self.config
        return {
            **self._reference_arguments(),
            "optimizer": config.optimizer,
            "algorithm": config.algorithm,
            "total_steps": self._total_steps,
            "pushes_adapters": config.pushes_adapters,
        }

    def _reference_arguments(self) -> dict[str, Any]:
        config = self.config
        return {
            "model_path": self._model_path,
            "model": config.model,
            "device": str(config.cluster.device),
            "temperature": config.rollout.temperature,
            "num_threads": self._plan.num_threads,
            "seed": config.seed,
            "num_replicas": config.cluster.num_replicas,
        }

    def _policy_group(self, role: str, factory: str, arguments: dict[str, Any]) -> ActorGroup:
        make = self._maker("policy", factory, lambda slot: arguments, is_async=False)
        return self._group(role, make, "policy", self.config.cluster.call_timeout_s)

    def _engine_group(self) -> ActorGroup:
        make = self._maker("engine", ENGINES[self.config.engine.kind], self._engine_arguments, is_async=True)
        return self._group("engine", make, "engine", self.config.engine.start_timeout_s)

    def _engine_arguments(self, slot: Slot) -> dict[str, Any]:
        config = self.config
        arguments: dict[str, Any] = {
            "model_path": self._model_path,
            "config": config.engine,
            "max_model_len": config.rollout.max_total_tokens,
            "device": str(config.cluster.device),
            "seed": config.seed + slot.rank,
            "num_threads": self._plan.num_threads,
        }
        if config.engine.kind is EngineKind.vllm:
            arguments["lora"] = config.model.lora
            if config.cluster.device is Device.cuda:
                arguments["tensor_parallel_size"] = config.cluster.num_gpus_per_engine
        return arguments

    def _reward_group(self) -> ActorGroup | None:
        config = self.config
        # The family's code may be missing where nothing is played.
        if not self._plan.of_role("reward") or not has_validator(config.environment.family, config.environment):
            return None
        return self._cpu_group(
            "reward",
            "skyrl_nat.environments.judge:make_reward_worker",
            {
                "family": config.environment.family,
                "config": config.environment,
                "timeout_s": VALIDATION_DEADLINE_IN_JOBS * config.environment.sandbox.job_timeout_s,
                "num_threads": config.environment.sandbox.num_servers,
            },
        )

    def _cpu_group(self, role: str, factory: str, arguments: dict[str, Any]) -> ActorGroup:
        make = self._maker(
            role,
            factory,
            lambda slot: arguments,
            is_async=True,
            max_restarts=self.config.recovery.max_worker_restarts,
        )
        return self._group(role, make, role, self.config.rollout.rollout_timeout_s)

    def _group(self, role: str, make: Callable[[int], ActorHandle], place: str, timeout_s: float) -> ActorGroup:
        return ActorGroup(role, make, [slot.rank for slot in self._plan.of_role(place)], timeout_s=timeout_s)

    def _maker(
        self,
        place: str,
        factory: str,
        arguments: Callable[[Slot], dict[str, Any]],
        *,
        is_async: bool,
        max_restarts: int = 0,
    ) -> Callable[[int], ActorHandle]:
        """Return what starts the actor of a rank, in the slots of the role `place`."""

        def make(rank: int) -> ActorHandle:
            slot = self.slots[place, rank]
            return spawn(
                slot,
                factory,
                arguments(slot),
                group=self._bundle,
                plan=self._plan,
                is_async=is_async,
                max_restarts=max_restarts,
            )

        return make


def describe(topology: Topology) -> dict[str, Any]:
    """Return the placement and process ids, for the run folder."""
    return {
        "slots": [asdict(slot) for slot in topology.starter.slots.values()],
        "num_threads": topology.plan.num_threads,
        "lost_nodes": topology.lost_nodes,
        "lost_engines": topology.lost_engines,
        "identities": {group.role: list(group.identities.values()) for group in topology.groups},
    }

"""Starting all workers of a run in their slots, and ending them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ray.util.placement_group import PlacementGroup

from skyrl_nat.cluster.actors import spawn
from skyrl_nat.cluster.clients import RemoteEngine, RemoteEnvironments, RemoteRewards
from skyrl_nat.cluster.group import ActorGroup, BaseModelCalls
from skyrl_nat.cluster.placement import PlacementPlan, plan_placement
from skyrl_nat.cluster.session import ray_session, reserved
from skyrl_nat.config.cluster import Device, Strategy
from skyrl_nat.config.rollout import EngineKind
from skyrl_nat.config.run import RunConfig
from skyrl_nat.environments.judge import has_validator
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
}
ANY_NUMBER_OF_RESTARTS = -1
VALIDATION_DEADLINE_IN_JOBS = 12
"""A validation may start servers, run the ladder, the package's own tests and its MCP script before it counts as
stuck: a slow answer gets its verdict, not a deadline."""


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
    identities: dict[str, list[dict[str, Any]]]
    """Process ids and nodes by role."""
    computing: list[ActorGroup]
    """Those on the devices: policy, engines, and a reference of its own."""

    async def usage(self) -> dict[str, list[Usage]]:
        """Ask all that compute what they did since the last call, by role and rank."""
        answers = await asyncio.gather(*(group.call_all("usage") for group in self.computing))
        return {group.role: usages for group, usages in zip(self.computing, answers, strict=True)}


@contextlib.asynccontextmanager
async def start_topology(config: RunConfig, model_path: Path, total_steps: int) -> AsyncIterator[Topology]:
    """Start Ray and all workers; on leaving, end them.

    Args:
        config: The run.
        model_path: Local folder of the model.
        total_steps: Optimizer steps of the run, for the learning-rate schedule.

    Raises:
        ConfigError: If the placement does not fit the nodes.
        WorkerError, EngineError, DeadlineError: If a worker does not come up.
    """
    with ray_session(config.cluster) as nodes:
        plan = plan_placement(config.cluster, nodes, is_overlapped=config.trainer.staleness > 0)
        with reserved(plan, config.cluster.start_timeout_s) as bundle:
            starter = _Starter(config, plan, bundle, model_path, total_steps)
            topology = await starter.start()
            try:
                yield topology
            finally:
                await _shut_down(topology)


async def _shut_down(topology: Topology) -> None:
    for group, method in ((topology.engines, "shutdown"), (topology.policy, "close")):
        with contextlib.suppress(Exception):
            # What is left is killed with the session; this only lets children end in order.
            await asyncio.wait_for(group.call_all(method), 20)


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
        self._config = config
        self._plan = plan
        self._bundle = bundle
        self._model_path = str(model_path)
        self._total_steps = total_steps

    async def start(self) -> Topology:
        config = self._config
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
        identities = await asyncio.gather(*[group.wait_ready(limit) for group in groups])
        await asyncio.gather(
            self._start_engines(engines), self._build(policy), *([self._build(own_reference)] if own_reference else [])
        )
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
            identities={group.role: found for group, found in zip(groups, identities, strict=True)},
            computing=[group for group in (policy, own_reference, engines) if group is not None],
        )

    def _reference(self, policy: ActorGroup, own: ActorGroup | None) -> WorkerCalls | None:
        """Return who answers for the reference: with LoRA the policy itself, without its adapters."""
        if own is None and self._config.algorithm.needs_reference:
            return BaseModelCalls(policy)
        return own

    async def _start_engines(self, engines: ActorGroup) -> None:
        """Start engines that share a GPU one after the other: each looks how much of its memory is left."""
        places = engines.size // self._config.cluster.num_engines_per_gpu
        for first in range(0, engines.size, places):
            ranks = range(first, first + places)
            await asyncio.gather(*(engines.call_one(rank, "start") for rank in ranks))

    async def _build(self, group: ActorGroup) -> None:
        address, port = await group.rendezvous()
        timeout_s = self._config.cluster.call_timeout_s
        await group.call_each(
            "init_process_group", [(rank, group.size, address, port, timeout_s) for rank in range(group.size)]
        )
        await group.call_all("build")

    def _policy_arguments(self) -> dict[str, Any]:
        config = self._config
        return {
            **self._reference_arguments(),
            "optimizer": config.optimizer,
            "algorithm": config.algorithm,
            "total_steps": self._total_steps,
            "pushes_adapters": config.pushes_adapters,
        }

    def _reference_arguments(self) -> dict[str, Any]:
        config = self._config
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
        handles = [
            spawn(
                slot,
                factory,
                arguments,
                group=self._bundle,
                plan=self._plan,
                is_async=False,
            )
            for slot in self._plan.of_role("policy")
        ]
        return ActorGroup(role, handles, timeout_s=self._config.cluster.call_timeout_s)

    def _engine_group(self) -> ActorGroup:
        config = self._config
        handles = []
        for slot in self._plan.of_role("engine"):
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
            handles.append(
                spawn(
                    slot,
                    ENGINES[config.engine.kind],
                    arguments,
                    group=self._bundle,
                    plan=self._plan,
                    is_async=True,
                )
            )
        return ActorGroup("engine", handles, timeout_s=config.engine.start_timeout_s)

    def _reward_group(self) -> ActorGroup | None:
        config = self._config
        if not has_validator(config.environment.family, config.environment):
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
        handles = [
            spawn(
                slot,
                factory,
                arguments,
                group=self._bundle,
                plan=self._plan,
                is_async=True,
                max_restarts=ANY_NUMBER_OF_RESTARTS,
            )
            for slot in self._plan.of_role(role)
        ]
        return ActorGroup(role, handles, timeout_s=self._config.rollout.rollout_timeout_s)


def describe(topology: Topology) -> dict[str, Any]:
    """Return the placement and process ids, for the run folder."""
    return {"slots": [asdict(slot) for slot in topology.plan.slots], "identities": topology.identities}

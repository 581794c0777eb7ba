"""Which worker sits on which node and GPUs: arithmetic first, so that it can be tested and printed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skyrl_nat.config.cluster import ClusterConfig, Device, Placement
from skyrl_nat.errors import ConfigError, WorkerError

CPUS_PER_NODE = 1.0
"""Reserved on each node: a head that Ray was told to keep free of work offers none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResources:
    """What one node offers."""

    name: str
    num_cpus: float
    num_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One worker's place."""

    role: str
    """policy, engine, environment or reward (a reference shares the policy's slots)."""
    rank: int
    node: int
    """Index into the nodes reserved."""
    gpus: tuple[int, ...] = ()
    """GPU indices on that node; empty for CPU work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPlan:
    """All slots and what to reserve on each node."""

    slots: tuple[Slot, ...]
    bundles: tuple[dict[str, float], ...]
    """Resources reserved on each node, in node order."""
    num_threads: int
    """CPU threads of each engine and policy rank."""
    is_overlapped: bool = False
    """Whether engines and trainer compute at the same time."""

    def of_role(self, role: str) -> list[Slot]:
        """Return the slots of a role in rank order."""
        return sorted((slot for slot in self.slots if slot.role == role), key=lambda slot: slot.rank)

    def neighbours(self) -> list[list[int]]:
        """Return for each engine, for each of its workers, the policy rank on the same GPU, or on the same machine.

        0 where there is none, since that rank reaches everybody.
        """
        of_place = {(slot.node, gpu): slot.rank for slot in self.of_role("policy") for gpu in slot.gpus or (None,)}
        return [[of_place.get((slot.node, gpu), 0) for gpu in slot.gpus or (None,)] for slot in self.of_role("engine")]

    def lines(self) -> list[str]:
        """Return the plan in words, one line per node."""
        rows = []
        for node in range(len(self.bundles)):
            here = [
                f"{slot.role} {slot.rank}" + (f" (GPU {','.join(map(str, slot.gpus))})" if slot.gpus else "")
                for slot in self.slots
                if slot.node == node
            ]
            rows.append(f"node {node}: " + ", ".join(here))
        return rows


def plan_placement(
    config: ClusterConfig, nodes: Sequence[NodeResources], *, is_overlapped: bool = False
) -> PlacementPlan:
    """Place every worker.

    Colocated: policy rank r and the engine that covers GPU r share that GPU. Disaggregated: the policy takes
    the first GPUs, engines the ones after. An engine never spans nodes. Where several engines share GPUs, ranks go
    round them. Environment and reward workers go round the nodes.

    Args:
        config: Counts and mode.
        nodes: What Ray sees; the first `num_nodes` that are large enough are used.
        is_overlapped: Engines and trainer compute at the same time (staleness above 0).

    Raises:
        ConfigError: With the shortfall in words.
    """
    usable = usable_nodes(config, nodes)
    if len(usable) < config.num_nodes:
        seen = ", ".join(f"{node.name}: {node.num_gpus} GPUs, {node.num_cpus:g} CPUs" for node in nodes) or "none"
        raise ConfigError(
            f"cluster.num_nodes must find {config.num_nodes} nodes with {config.num_gpus_per_node} GPUs each, Ray sees "
            f"{seen}. Lower cluster.num_nodes or cluster.num_gpus_per_node, or start more nodes"
        )
    chosen = usable[: config.num_nodes]
    accelerated = _cpu_slots(config) if config.device is Device.cpu else _gpu_slots(config)
    others = [
        Slot(role=role, rank=rank, node=rank % config.num_nodes)
        for role, number in (
            ("environment", config.num_environment_workers),
            ("reward", config.num_reward_workers),
        )
        for rank in range(number)
    ]
    bundles = tuple(
        {"CPU": CPUS_PER_NODE} | ({"GPU": float(config.num_gpus_per_node)} if config.num_gpus_per_node else {})
        for _ in chosen
    )
    return PlacementPlan(
        slots=(*accelerated, *others),
        bundles=bundles,
        num_threads=_num_threads(config, chosen, accelerated, is_overlapped),
        is_overlapped=is_overlapped,
    )


def usable_nodes(config: ClusterConfig, nodes: Sequence[NodeResources]) -> list[NodeResources]:
    """Return the nodes that are large enough, in their order."""
    return [node for node in nodes if node.num_gpus >= config.num_gpus_per_node and node.num_cpus >= CPUS_PER_NODE]


def devices_of(plan: PlacementPlan, config: ClusterConfig) -> tuple[int, dict[str, list[tuple[int, ...]]]]:
    """Return how many devices a run holds, and the ones that each policy rank and engine computes on, by role.

    All GPUs that are reserved count, used or not. Without GPUs a process is a device, except that a colocated rank
    and engine of one number, which take turns on the cores, are one together.
    """
    roles = ("policy", "engine")
    if config.device is Device.cuda:
        per_node = config.num_gpus_per_node
        places = {
            role: [tuple(slot.node * per_node + gpu for gpu in slot.gpus) for slot in plan.of_role(role)]
            for role in roles
        }
        return config.num_nodes * per_node, places
    takes_turns = config.placement is Placement.colocated and not plan.is_overlapped
    first = 0 if takes_turns else config.num_policy_ranks
    num_places = config.num_engines // config.num_engines_per_gpu
    places = {
        "policy": [(rank,) for rank in range(config.num_policy_ranks)],
        "engine": [(first + rank % num_places,) for rank in range(config.num_engines)],
    }
    return max(config.num_policy_ranks, first + num_places), places


def _cpu_slots(config: ClusterConfig) -> list[Slot]:
    policy = [Slot(role="policy", rank=rank, node=rank % config.num_nodes) for rank in range(config.num_policy_ranks)]
    engines = [Slot(role="engine", rank=rank, node=rank % config.num_nodes) for rank in range(config.num_engines)]
    return policy + engines


def _gpu_slots(config: ClusterConfig) -> list[Slot]:
    per_node, per_engine = config.num_gpus_per_node, config.num_gpus_per_engine
    policy = [
        Slot(role="policy", rank=rank, node=rank // per_node, gpus=(rank % per_node,))
        for rank in range(config.num_policy_ranks)
    ]
    first = 0 if config.placement is Placement.colocated else config.num_policy_ranks
    engines = []
    num_places = config.num_engines // config.num_engines_per_gpu
    for rank in range(config.num_engines):
        start = first + rank % num_places * per_engine
        node, offset = divmod(start, per_node)
        if offset + per_engine > per_node or node >= config.num_nodes:
            raise ConfigError(
                f"cluster.num_gpus_per_engine must let engine {rank} fit one node, GPUs {start} to "
                f"{start + per_engine - 1} do not with {config.num_nodes} nodes of {per_node}. Use engine sizes and a "
                "number of policy ranks that divide the node"
            )
        engines.append(Slot(role="engine", rank=rank, node=node, gpus=tuple(range(offset, offset + per_engine))))
    return policy + engines


def _num_threads(
    config: ClusterConfig, nodes: Sequence[NodeResources], slots: Sequence[Slot], is_overlapped: bool
) -> int:
    if config.num_threads:
        return config.num_threads
    cpus = min(node.num_cpus for node in nodes)
    computing = [slot for slot in slots if slot.node == 0]
    if config.device is Device.cpu and config.placement is Placement.colocated and not is_overlapped:
        # Engines and trainer take turns on the same cores, so each may use all of its kind's share.
        kinds = [sum(slot.role == role for slot in computing) for role in ("policy", "engine")]
        return max(1, int(cpus // max(kinds)))
    return max(1, int(cpus // max(1, len(computing))))


def visible_devices(places: str, inherited: str | None) -> str:
    """Return the value of `CUDA_VISIBLE_DEVICES` for places counted among the GPUs that a node may use.

    Args:
        places: Numbers with commas between.
        inherited: The node's own value, set by Slurm, by the user or by who started Ray there: numbers or names; where
            it names no devices, all of them count.

    Raises:
        WorkerError: The node shows fewer GPUs than were placed on it.
    """
    if not inherited:
        return places
    names = [name.strip() for name in inherited.split(",")]
    numbers = [int(place) for place in places.split(",")]
    if max(numbers) >= len(names):
        raise WorkerError(
            f"A node must show the GPUs that are placed on it, {places} of those visible, got "
            f"CUDA_VISIBLE_DEVICES={inherited}. Start Ray there with the same value, or lower cluster.num_gpus_per_node"
        )
    return ",".join(names[number] for number in numbers)


def require_own_gpus(role: str, identities: Mapping[int, Mapping[str, Any]], num_sharing: int) -> None:
    """Refuse workers of one role that landed on one GPU, unless so many are to share it.

    Args:
        role: For the message.
        identities: Node and visible GPUs by rank, as the workers themselves report them.
        num_sharing: Workers of the role on one GPU.

    Raises:
        WorkerError: With the ranks and the GPU.
    """
    ranks_of: dict[tuple[str, str], list[int]] = {}
    for rank, identity in identities.items():
        for gpu in identity["gpus"].split(","):
            ranks_of.setdefault((identity["node"], gpu), []).append(rank)
    for (node, gpu), ranks in ranks_of.items():
        if len(ranks) > num_sharing:
            raise WorkerError(
                f"Each {role} must have GPUs of its own, but ranks {', '.join(map(str, ranks))} all see "
                f"{gpu or 'every GPU'} on node {node}. Look for who sets CUDA_VISIBLE_DEVICES there"
            )

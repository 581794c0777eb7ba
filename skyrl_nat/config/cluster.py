"""Which processes exist, where they sit, and how weights travel between them."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from skyrl_nat.config.checks import (
    require,
    require_divisor,
    require_finite,
    require_multiple,
    require_not_negative,
    require_positive,
)


class Placement(StrEnum):
    """Whether engines and trainer share devices."""

    colocated = "colocated"
    """Engines and policy take turns on the same devices."""
    disaggregated = "disaggregated"
    """Engines have devices of their own and may sample while the policy trains."""


class Device(StrEnum):
    """Where tensors live."""

    cpu = "cpu"
    """Main memory and cores."""
    cuda = "cuda"
    """NVIDIA GPUs."""


class Strategy(StrEnum):
    """Who lays the model in training out over the ranks."""

    fsdp2 = "fsdp2"
    """PyTorch's fully sharded data parallel, second version."""
    deepspeed = "deepspeed"
    """ZeRO-3 of the library DeepSpeed."""


class Transport(StrEnum):
    """How new weights reach the engines."""

    gloo = "gloo"
    """CPU broadcast inside vLLM's weight-transfer life cycle."""
    nccl = "nccl"
    """Broadcast between GPUs: for engines on cards of their own."""
    ipc = "ipc"
    """Memory that both map: for engines on the policy's cards; also between processes of a machine without GPUs."""
    host = "host"
    """One copy through the object store, for the embedded engine."""


@dataclass(kw_only=True, slots=True)
class ClusterConfig:
    """Section `cluster`."""

    placement: Placement = Placement.colocated
    """Whether engines share the policy's devices."""
    device: Device = Device.cpu
    """What policy and engines compute on."""
    num_nodes: int = 1
    """Machines that workers are placed on."""
    num_gpus_per_node: int = 0
    """0 on machines without GPUs."""
    num_policy_ranks: int = 1
    """Ranks of the policy (and of the reference, if any)."""
    strategy: Strategy = Strategy.fsdp2
    """Who cuts policy and reference over these ranks; checkpoints of one do not fit the other. With `deepspeed`
    `cluster.num_replicas` and `sequence_parallel_size`, `dtype`, `compile`, `activation_offload`,
    `reshard_after_forward` and `offload` of section `model` keep their defaults."""
    num_replicas: int = 1
    """Copies of the policy: each is sharded over `num_policy_ranks / num_replicas` ranks (HSDP), so that layers are
    gathered inside a copy, best one node, and only gradients travel between copies."""
    num_engines: int = 1
    """Engines that generate, over all nodes; a multiple of `num_engines_per_gpu`."""
    num_gpus_per_engine: int = 1
    """Tensor-parallel size of one engine; ignored on CPU."""
    num_engines_per_gpu: int = 1
    """Engines on the same GPUs: one engine of a small model is bound by its CPU and leaves the GPU idle. Each takes
    `engine.gpu_memory_fraction`."""
    num_environment_workers: int = 1
    """Processes that step environments, dealt out over the nodes; more of them play more rollouts at a time."""
    num_reward_workers: int = 1
    """Processes that judge answers, dealt out over the nodes, each with `environment.sandbox.num_servers` sandboxes."""
    num_threads: int = 0
    """CPU threads of each engine and policy rank; 0 divides the machine's cores among ranks."""
    ray_address: str | None = None
    """Address of a running Ray cluster; None starts one on this machine (or joins the one of `ray job submit`)."""
    environment: dict[str, Any] = field(default_factory=dict[str, Any])
    """Environment variables of all workers, by name: text or numbers. Secrets are refused: export them on the nodes."""
    call_timeout_s: float = 1800.0
    """Deadline of one call to a worker (training step, checkpoint, weight push)."""
    start_timeout_s: float = 300.0
    """Deadline for a worker to exist and answer."""

    def __post_init__(self) -> None:
        require_finite(self, "cluster")
        require_positive(
            self,
            "cluster",
            "num_nodes",
            "num_policy_ranks",
            "num_replicas",
            "num_engines",
            "num_gpus_per_engine",
            "num_engines_per_gpu",
            "num_environment_workers",
            "num_reward_workers",
            "call_timeout_s",
            "start_timeout_s",
        )
        require_not_negative(self, "cluster", "num_gpus_per_node", "num_threads")
        require_divisor("cluster.num_replicas", self.num_replicas, self.num_policy_ranks, "cluster.num_policy_ranks")
        require_multiple(
            "cluster.num_engines", self.num_engines, self.num_engines_per_gpu, "cluster.num_engines_per_gpu"
        )
        self.environment = {name: _variable(name, value) for name, value in self.environment.items()}
        if self.device is Device.cuda:
            require(
                self.num_gpus_per_node >= 1,
                "cluster.num_gpus_per_node",
                "be >= 1 with cluster.device=cuda",
                self.num_gpus_per_node,
                "Set it to the GPUs of one node, or use cluster.device=cpu.",
            )


def _variable(name: str, value: object) -> str:
    """Return an environment variable's value as text; what has no certain text is refused."""
    path = f"cluster.environment.{name}"
    is_name = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None
    require(is_name, path, "be a variable's name", name, "Use letters, digits and underscores.")
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    require(is_plain, path, "be text or a number", value, "Write the text that programs are to see in quotes, as '1'.")
    return str(value)


@dataclass(kw_only=True, slots=True)
class WeightSyncConfig:
    """Section `weight_sync`."""

    transport: Transport = Transport.host
    """How new weights reach the engines after every batch."""
    bucket_mib: int = 512
    """Tensors travel together in buffers of this size; each end has one or two during a push."""
    verify_checksums: bool = False
    """Compare a checksum of every tensor in the engine with the trainer's after each push; each side computes where the
    weights lie, and the trainer gathers its own once more for it. An engine over several GPUs compares what its loader
    was given."""
    timeout_s: float = 300.0
    """Deadline of one push."""

    def __post_init__(self) -> None:
        require_finite(self, "weight_sync")
        require_positive(self, "weight_sync", "timeout_s", "bucket_mib")

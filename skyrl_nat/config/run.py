"""`RunConfig`: everything that describes one run, and the batch arithmetic derived from it."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skyrl_nat.config.algorithm import AlgorithmConfig, OldLogprobs, PolicyLoss
from skyrl_nat.config.checks import (
    refuse_words_for_nothing,
    require,
    require_divisor,
    require_finite,
    require_multiple,
    require_not_negative,
    require_positive,
)
from skyrl_nat.config.cluster import ClusterConfig, Device, Placement, Strategy, Transport, WeightSyncConfig
from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.config.model import Dtype, ModelConfig, Offload, OptimizerConfig
from skyrl_nat.config.outputs import AlarmsConfig, CheckpointConfig, EvaluationConfig, TrackingConfig
from skyrl_nat.config.planner import PlannerConfig
from skyrl_nat.config.recovery import RecoveryConfig
from skyrl_nat.config.rollout import AdapterPush, EngineConfig, EngineKind, RolloutConfig

MAX_VLLM_RANK = 512
_FEWEST_IN_FLIGHT = 512


@dataclass(kw_only=True, slots=True)
class TrainerConfig:
    """Section `trainer`: how much is played and trained."""

    steps: int = 0
    """Batches to train; 0 derives them from `epochs`."""
    epochs: int = 1
    """Passes over the training tasks; only read where `steps` is 0."""
    max_minutes: float = 0.0
    """Wall time of this start, from the beginning of its process: the step that begins when it is over is the last one,
    with the evaluation and the checkpoint of a last step. With `resume=latest` the same command goes on. 0 sets no
    limit."""
    tasks_per_step: int = 16
    """P: tasks (groups) of one batch."""
    rollouts_per_task: int = 8
    """G: rollouts of one group."""
    updates_per_batch: int = 1
    """Optimizer steps on one batch; its groups are split evenly among them."""
    micro_batch_tokens: int = 16384
    """Packed tokens of one forward and backward pass on one rank, or on the `model.sequence_parallel_size` ranks that
    share them; at least `rollout.max_total_tokens`."""
    staleness: int = 0
    """Batches that rollouts may run ahead of the trainer; 0 is strictly on-policy."""
    min_valid_rollouts: int = 2
    """Groups with fewer rollouts that have a verdict are dropped (and counted)."""
    max_dropped_groups: int = 16
    """The run stops after this many dropped groups in a row."""

    def __post_init__(self) -> None:
        require_finite(self, "trainer")
        require_positive(
            self,
            "trainer",
            "tasks_per_step",
            "rollouts_per_task",
            "updates_per_batch",
            "micro_batch_tokens",
            "min_valid_rollouts",
            "max_dropped_groups",
        )
        require_not_negative(self, "trainer", "steps", "epochs", "max_minutes", "staleness")
        require(
            self.steps > 0 or self.epochs > 0,
            "trainer.steps",
            "be > 0 where trainer.epochs is 0",
            self.steps,
            "Set one of the two.",
        )
        # Groups stay whole.
        require_multiple(
            "trainer.tasks_per_step", self.tasks_per_step, self.updates_per_batch, "trainer.updates_per_batch"
        )
        require(
            self.min_valid_rollouts <= self.rollouts_per_task,
            "trainer.min_valid_rollouts",
            f"be <= trainer.rollouts_per_task ({self.rollouts_per_task})",
            self.min_valid_rollouts,
            "Lower it.",
        )


@dataclass(kw_only=True, slots=True)
class RunConfig:
    """The whole run; plain data after `load.load_config`."""

    name: str = "auto"
    """Name of the run; its folder is `root_dir/name`. `auto` makes one from family and time, and with
    `resume=latest` or `best` picks the newest run in `root_dir` that has a checkpoint."""
    root_dir: str = "runs"
    """Folder that holds the run folders."""
    resume: str = "never"
    """`never` (a folder with checkpoints is refused), `latest`, `best` (by reward on held-out tasks), or path or URL of
    a checkpoint folder."""
    seed: int = 0
    """Decides the order of tasks, what is sampled and the adapters' first values."""
    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    weight_sync: WeightSyncConfig = field(default_factory=WeightSyncConfig)
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    alarms: AlarmsConfig = field(default_factory=AlarmsConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    """Only for `skyrl-nat prepare --planner`."""

    def __post_init__(self) -> None:
        refuse_words_for_nothing(self)
        for name in ("root_dir", "resume"):
            value = getattr(self, name)
            require(bool(value.strip()), name, "not be empty", value, f"Leave {name} out for its default.")
        require(
            "://" not in self.root_dir,
            "root_dir",
            "be a folder that all nodes see",
            "a URL",
            "Let checkpoint.mirror be the URL: each complete checkpoint is copied there.",
        )
        require(
            bool(self.name) and Path(self.name).name == self.name and self.name not in (".", ".."),
            "name",
            "be one folder name without slashes",
            self.name,
            "Put parent folders into root_dir.",
        )
        require(self.seed >= 0, "seed", "be >= 0", self.seed, "Use any non-negative integer.")
        self._check_batch()
        self._check_placement()
        self._check_engine()
        self._check_strategy()

    def _check_batch(self) -> None:
        trainer = self.trainer
        require(
            trainer.micro_batch_tokens >= self.rollout.max_total_tokens,
            "trainer.micro_batch_tokens",
            f"be >= rollout.max_total_tokens ({self.rollout.max_total_tokens})",
            trainer.micro_batch_tokens,
            "One rollout must fit a micro-batch: raise the one or lower the other.",
        )
        # That many ranks share each micro-batch.
        require_divisor(
            "model.sequence_parallel_size",
            self.model.sequence_parallel_size,
            self.cluster.num_policy_ranks,
            "cluster.num_policy_ranks",
        )
        self._check_algorithm()

    def _check_algorithm(self) -> None:
        trainer, algorithm = self.trainer, self.algorithm
        require(
            not algorithm.is_group_relative or trainer.rollouts_per_task >= 2,
            "trainer.rollouts_per_task",
            f"be >= 2 with algorithm.advantage={algorithm.advantage}",
            trainer.rollouts_per_task,
            "Raise it: a group of one has no baseline.",
        )
        require(
            not algorithm.is_offline or bool(self.environment.recorded_files),
            "environment.recorded_files",
            f"name rollouts of earlier runs with algorithm.policy_loss={algorithm.policy_loss}",
            self.environment.recorded_files,
            "Add environment.recorded_files=[runs/NAME/rollouts/train_000001.jsonl], more files after commas.",
        )
        is_played = not algorithm.reads_ratio or not self.environment.recorded_files
        require(
            is_played or algorithm.old_logprobs is OldLogprobs.rollout,
            "algorithm.old_logprobs",
            f"be rollout with environment.recorded_files and algorithm.policy_loss={algorithm.policy_loss}",
            str(algorithm.old_logprobs),
            "Another policy sampled them, only its own log-probs correct for that: add algorithm.old_logprobs=rollout.",
        )
        require(
            trainer.updates_per_batch == 1
            or not algorithm.reads_ratio
            or algorithm.old_logprobs is not OldLogprobs.current,
            "algorithm.old_logprobs",
            f"be recompute or rollout with trainer.updates_per_batch={trainer.updates_per_batch}",
            str(algorithm.old_logprobs),
            "The second update moves the current log-probs, not the old ones: add algorithm.old_logprobs=recompute.",
        )
        has_ratio = trainer.updates_per_batch > 1 or algorithm.old_logprobs is OldLogprobs.rollout
        require(
            algorithm.policy_loss is not PolicyLoss.kl_cov or has_ratio,
            "trainer.updates_per_batch",
            "be > 1, or algorithm.old_logprobs be rollout, with algorithm.policy_loss=kl_cov",
            trainer.updates_per_batch,
            "Its penalty has no gradient where the policy has not moved: add trainer.updates_per_batch=2.",
        )
        require(
            algorithm.overlong_buffer < self.rollout.max_total_tokens,
            "algorithm.overlong_buffer",
            f"be < rollout.max_total_tokens ({self.rollout.max_total_tokens})",
            algorithm.overlong_buffer,
            "Use about a fifth of it.",
        )

    def _check_engine(self) -> None:
        cluster = self.cluster
        for name in ("fp32_head", "fp32_residual"):
            ours, theirs = getattr(self.model, name), getattr(self.engine, name)
            require(
                ours == theirs,
                f"engine.{name}",
                f"equal model.{name} ({ours})",
                theirs,
                f"Both sides must round alike: set model.{name} alone.",
            )
            require(
                not theirs or self.engine.kind is EngineKind.vllm or self.engine.dtype == "float32",
                f"model.{name}",
                "be false with engine.kind=hf and engine.dtype=bfloat16",
                ours,
                "Use engine=vllm_gpu.",
            )
        require(
            self.weight_sync.transport is Transport.host or self.engine.kind is EngineKind.vllm,
            "weight_sync.transport",
            "be host with engine.kind=hf",
            self.weight_sync.transport,
            "Add weight_sync=host.",
        )
        require(
            not self.pushes_adapters or self.model.lora.rank <= MAX_VLLM_RANK,
            "model.lora.rank",
            f"be <= {MAX_VLLM_RANK} with engine.adapters=separate",
            self.model.lora.rank,
            "vLLM has no more room for an adapter: add engine.adapters=merged.",
        )
        if cluster.device is Device.cpu:
            require(
                not (self.engine.num_speculative_tokens or "speculative_config" in self.engine.extra),
                "engine.num_speculative_tokens",
                "be 0 (and engine.extra without speculative_config) with cluster.device=cpu",
                self.engine.num_speculative_tokens,
                "Leave both out: vLLM's CPU build takes wrong guesses, so that tokens are not drawn from the policy.",
            )
            require(
                self.model.compute_dtype is Dtype.float32 and self.engine.dtype == "float32",
                "model.compute_dtype",
                "be float32 (and engine.dtype too) with cluster.device=cpu",
                self.model.compute_dtype,
                "Leave both out: bfloat16 is several times slower than float32 on CPUs.",
            )
        else:
            self._check_gpus()

    def _check_placement(self) -> None:
        cluster = self.cluster
        is_apart = cluster.placement is Placement.disaggregated
        require(
            self.weight_sync.transport is not Transport.nccl or (is_apart and cluster.device is Device.cuda),
            "weight_sync.transport",
            "not be nccl where engines share the policy's GPUs or there are none",
            self.weight_sync.transport,
            "NCCL joins no two processes on one GPU: use weight_sync=ipc.",
        )
        require(
            self.weight_sync.transport is not Transport.ipc or not is_apart,
            "weight_sync.transport",
            "not be ipc with cluster.placement=disaggregated",
            self.weight_sync.transport,
            "Use weight_sync=nccl.",
        )
        require(
            self.model.offload is Offload.none or not is_apart,
            "model.offload",
            "be none with cluster.placement=disaggregated",
            str(self.model.offload),
            "Leave it out: nobody else needs the memory of the policy's devices.",
        )

    def _check_strategy(self) -> None:
        if self.cluster.strategy is Strategy.fsdp2:
            return
        model = self.model
        only_with_fsdp2 = (
            ("cluster.num_replicas", self.cluster.num_replicas, 1),
            ("model.sequence_parallel_size", model.sequence_parallel_size, 1),
            ("model.dtype", str(model.dtype), Dtype.float32),
            ("model.compile", model.compile, False),
            ("model.activation_offload", model.activation_offload, False),
            ("model.reshard_after_forward", model.reshard_after_forward, True),
            ("model.offload", str(model.offload), Offload.none),
        )
        for name, value, expected in only_with_fsdp2:
            require(
                value == expected,
                name,
                f"be {str(expected).lower()} with cluster.strategy=deepspeed",
                value,
                "Leave it, or use cluster.strategy=fsdp2.",
            )

    def _check_gpus(self) -> None:
        cluster = self.cluster
        fraction = cluster.num_engines_per_gpu * self.engine.gpu_memory_fraction
        require(
            fraction < 1,
            "engine.gpu_memory_fraction",
            f"leave {cluster.num_engines_per_gpu} engines on one GPU (cluster.num_engines_per_gpu) room",
            self.engine.gpu_memory_fraction,
            "Divide about 0.5 (colocated) or 0.9 (disaggregated) by the number of engines.",
        )
        total = cluster.num_nodes * cluster.num_gpus_per_node
        engines = cluster.num_engines // cluster.num_engines_per_gpu * cluster.num_gpus_per_engine
        policy = cluster.num_policy_ranks
        needed = max(engines, policy) if cluster.placement is Placement.colocated else engines + policy
        require(
            needed <= total,
            "cluster.num_policy_ranks",
            f"fit {total} GPUs together with the engines ({engines} GPUs, {cluster.placement})",
            policy,
            "Lower cluster.num_engines, cluster.num_gpus_per_engine or cluster.num_policy_ranks.",
        )

    def check_heads(self, num_heads: int) -> None:
        """Refuse sizes that do not share out the model's query heads evenly.

        Raises:
            ConfigError: With the nearest sizes that do.
        """
        heads = "the query heads of model.path"
        require_divisor("model.sequence_parallel_size", self.model.sequence_parallel_size, num_heads, heads)
        if self.cluster.device is Device.cuda:
            require_divisor("cluster.num_gpus_per_engine", self.cluster.num_gpus_per_engine, num_heads, heads)

    @property
    def pushes_adapters(self) -> bool:
        """Whether adapters alone travel to the engines."""
        return self.model.lora.rank > 0 and self.engine.adapters is AdapterPush.separate

    @property
    def max_concurrent_rollouts(self) -> int:
        """Rollouts in flight at most, over all engines."""
        at_once = self.cluster.num_engines * self.engine.max_num_seqs
        return self.rollout.max_concurrent_rollouts or max(_FEWEST_IN_FLIGHT, at_once)

    @property
    def run_dir(self) -> Path:
        """Folder of this run, absolute."""
        return (Path(self.root_dir) / self.name).expanduser().resolve()

    @property
    def data_parallel_size(self) -> int:
        """Micro-batches that are computed at the same time."""
        return self.cluster.num_policy_ranks // self.model.sequence_parallel_size

    def total_steps(self, num_tasks: int) -> int:
        """Return the number of batches of the run, given the number of training tasks."""
        if self.trainer.steps:
            return self.trainer.steps
        return self.trainer.epochs * num_tasks // self.trainer.tasks_per_step

    def batch_plan(self, num_tasks: int) -> dict[str, int]:
        """Return every batch word as a number, for the start of the log."""
        trainer = self.trainer
        steps = self.total_steps(num_tasks)
        return {
            "training tasks": num_tasks,
            "tasks per step (P)": trainer.tasks_per_step,
            "rollouts per task (G)": trainer.rollouts_per_task,
            "rollouts per step": trainer.tasks_per_step * trainer.rollouts_per_task,
            "optimizer steps per batch": trainer.updates_per_batch,
            "tasks per optimizer step": trainer.tasks_per_step // trainer.updates_per_batch,
            "micro-batch token budget": trainer.micro_batch_tokens,
            "policy ranks": self.cluster.num_policy_ranks,
            "policy ranks per micro-batch": self.model.sequence_parallel_size,
            "staleness bound": trainer.staleness,
            "turns per rollout at most": self.rollout.max_turns,
            "tokens per rollout at most": self.rollout.max_total_tokens,
            "steps": steps,
            "optimizer steps": steps * trainer.updates_per_batch,
            "rollouts in the run": steps * trainer.tasks_per_step * trainer.rollouts_per_task,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain nested data, for the run folder."""
        return dataclasses.asdict(self)

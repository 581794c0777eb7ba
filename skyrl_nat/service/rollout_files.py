"""Rollout files of a run as rows, and single rollouts of them."""

import functools
import json
import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from skyrl_nat.service.routes.errors import ServiceError, not_found
from skyrl_nat.service.run_folders import RunFolder
from skyrl_nat.types import Outcome

FOLDER = "rollouts"
MOST_ROWS = 500
_FINDING_CHARS = 200


class Label(StrEnum):
    """What rollouts were played for."""

    TRAIN = "train"
    EVAL = "eval"


class RolloutFilter(BaseModel):
    """Which rows are wanted; None takes all, of the step the newest."""

    step: int | None = None
    label: Label = Label.TRAIN
    outcome: Outcome | None = None
    min_reward: float | None = None
    max_reward: float | None = None
    limit: int = Field(default=100, ge=1, le=MOST_ROWS)
    offset: int = Field(default=0, ge=0)

    def takes(self, row: dict[str, Any]) -> bool:
        """Return whether a row is wanted; a rollout without a reward is none of those within bounds."""
        if self.outcome is not None and row["outcome"] != self.outcome:
            return False
        if self.min_reward is None and self.max_reward is None:
            return True
        reward = row["reward"]
        if reward is None:
            return False
        lowest = -float("inf") if self.min_reward is None else self.min_reward
        highest = float("inf") if self.max_reward is None else self.max_reward
        return lowest <= reward <= highest


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFile:
    """The rollouts of one step, without their tokens."""

    path: Path
    rows: tuple[dict[str, Any], ...]
    places: dict[tuple[int, int], tuple[int, int]]
    """Group and number within it -> first byte and length of the line."""
    num_broken: int
    """Lines that are no recorded rollout."""

    def outcomes(self) -> dict[str, int]:
        """Return how many rollouts ended in which way."""
        return dict(Counter(str(row["outcome"]) for row in self.rows))


def recorded_steps(run: RunFolder) -> dict[str, list[int]]:
    """Return the steps that have a file, by label."""
    found: dict[str, list[int]] = {label: [] for label in Label}
    folder = run.path / FOLDER
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    for name in names:
        match = re.fullmatch(r"(train|eval)_(\d{1,9})\.jsonl", name)
        if match and run.file(FOLDER, name):
            found[match[1]].append(int(match[2]))
    return {label: sorted(steps) for label, steps in found.items()}


def open_step(run: RunFolder, step: int, label: Label) -> StepFile:
    """Return the rollouts of a step.

    Raises:
        ServiceError: The step has none.
    """
    path = run.file(FOLDER, f"{label}_{step:06d}.jsonl")
    if path is None:
        raise not_found(
            f"the step must be one that run {run.id} has {label} rollouts of, got {step}. GET /runs/{run.id}/rollouts "
            "names them",
            "step",
        )
    found = path.stat()
    return _read(path, found.st_mtime_ns, found.st_size)


def read_record(file: StepFile, group: int, index: int) -> dict[str, Any]:
    """Return the line of one rollout.

    Raises:
        ServiceError: There is no such rollout.
    """
    place = file.places.get((group, index))
    if place is None:
        raise not_found(f"{file.path.name} must hold rollout {index} of group {group}, it does not. Choose another")
    with file.path.open("rb") as lines:
        lines.seek(place[0])
        try:
            return json.loads(lines.read(place[1]))
        except (ValueError, RecursionError) as error:
            # The step was played anew since.
            raise ServiceError(409, "changed", f"{file.path.name} has changed while it was read. Try again") from error


@functools.lru_cache(maxsize=32)
def _read(path: Path, changed: int, size: int) -> StepFile:
    """Read a file as it was at that time; the recorder replaces files whole."""
    del changed, size
    rows, places, members = [], {}, Counter[int]()
    num_broken = begin = 0
    with path.open("rb") as lines:
        for line in lines:
            try:
                record = json.loads(line)
                group = int(record["index"])
                row = _row_of(record) | {"group": group, "index": members[group]}
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                num_broken += bool(line.strip())
            else:
                places[group, members[group]] = (begin, len(line))
                members[group] += 1
                rows.append(row)
            begin += len(line)
    return StepFile(path=path, rows=tuple(rows), places=places, num_broken=num_broken)


def _row_of(record: dict[str, Any]) -> dict[str, Any]:
    reward, findings = record["reward"], record["findings"]
    return {
        "rollout_id": str(record["rollout_id"]),
        "task_id": str(record["task_id"]),
        "difficulty": record["difficulty"],
        "outcome": str(record["outcome"]),
        "reason": str(record["reason"]),
        "reward": None if reward is None else float(reward),
        "is_success": bool(record["is_success"]),
        "reward_parts": dict(record["reward_parts"]),
        "num_turns": len(record["turns"]),
        "num_tokens": int(record["num_tokens"]),
        "num_loss_tokens": int(record["num_loss_tokens"]),
        "policy_version": record["newest_version"],
        "finding": str(findings[0])[:_FINDING_CHARS] if findings else "",
    }

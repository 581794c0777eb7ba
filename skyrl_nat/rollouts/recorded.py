"""Groups read back from rollout files: as they were, or (of earlier runs, or dialogues) in the place of playing."""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from skyrl_nat.errors import DataError
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.dialogues import group_of, is_dialogue, rollout_of_dialogue, rows_of_parquet
from skyrl_nat.types import FinishReason, Outcome, RewardResult, Rollout, RolloutGroup, StageReport, Task, Turn


class RecordedGroups:
    """Finished groups by task; as tasks they go through the stream and the producer like others."""

    def __init__(self, groups: Sequence[RolloutGroup], *, has_logprobs: bool = True) -> None:
        """Take groups with distinct task ids.

        Args:
            groups: What is played back.
            has_logprobs: Whether all rollouts have the log-probs they were sampled with; those of dialogues have none.
        """
        self._groups = {group.task.task_id: group for group in groups}
        self.has_logprobs = has_logprobs

    @classmethod
    def read(cls, paths: Sequence[Path], open_codec: Callable[[], ChatCodec] | None = None) -> "RecordedGroups | None":
        """Read rollout files that `RolloutRecorder` wrote, and files of dialogues; None of no files.

        Args:
            paths: JSON lines; dialogues also as parquet.
            open_codec: Opens the tokenizer of the model that is trained, where a file holds dialogues.

        Raises:
            DataError: With file and line, where one cannot be read or holds no rollout.
        """
        if not paths:
            return None
        groups: dict[tuple[int, str], list[Rollout]] = {}
        codec: ChatCodec | None = None
        for path, number, record in _records(paths):
            try:
                if is_dialogue(record) and open_codec is not None:
                    codec = codec or open_codec()
                    name, rollout_id = group_of(record, number), f"{paths.index(path)}/{number}"
                    rollout = rollout_of_dialogue(record, rollout_id, codec)
                else:
                    name, rollout = str(int(record["index"])), _of_another_run(rollout_of(record))
            except (ValueError, KeyError, TypeError) as error:
                raise _no_rollout(path, number, json.dumps(record), error) from error
            groups.setdefault((paths.index(path), name), []).append(rollout)
        if not groups:
            raise DataError(f"Recorded files must hold rollouts, {', '.join(map(str, paths))} hold none. Name others")
        # Files of two runs may have one name, so that a task is named by its file's place in the list.
        tasks = [
            replace(members[0].task, task_id=f"{file}/{paths[file].stem}/{name}")
            for (file, name), members in groups.items()
        ]
        return cls(
            [
                RolloutGroup(task=task, index=number, rollouts=members)
                for number, (task, members) in enumerate(zip(tasks, groups.values(), strict=True))
            ],
            has_logprobs=codec is None,
        )

    @property
    def tasks(self) -> list[Task]:
        """One task per group, in file order."""
        return [group.task for group in self._groups.values()]

    async def play(self, task: Task, index: int) -> RolloutGroup:
        """Return the group that was recorded for a task, at a new place in the stream, which its ids begin with."""
        group = self._groups[task.task_id]
        rollouts = [replace(rollout, rollout_id=f"{index}/{rollout.rollout_id}") for rollout in group.rollouts]
        return replace(group, index=index, rollouts=rollouts)


def count_groups(paths: Sequence[Path]) -> int:
    """Return how many groups `RecordedGroups.read` would find, without reading their tokens.

    Raises:
        DataError: With file and line, where one cannot be read or holds no rollout.
    """
    found: set[tuple[Path, str]] = set()
    for path, number, record in _records(paths):
        try:
            found.add((path, group_of(record, number) if is_dialogue(record) else str(int(record["index"]))))
        except (ValueError, KeyError, TypeError) as error:
            raise _no_rollout(path, number, json.dumps(record), error) from error
    return len(found)


def read_groups(path: Path) -> list[RolloutGroup]:
    """Return the groups of a file as `recorder.write_groups` got them, in order.

    The payload and hidden part of tasks, and the artifacts, are not in the file.

    Raises:
        DataError: With file and line, where it cannot be read or holds something else than recorded rollouts.
    """
    groups: dict[int, RolloutGroup] = {}
    for _, number, record in _records([path]):
        try:
            rollout, index = rollout_of(record), int(record["index"])
            task = replace(rollout.task, task_id=record["group_task_id"])
            group = RolloutGroup(task=task, index=index, rollouts=[], score_s=_seconds(record["score_s"]))
        except (ValueError, KeyError, TypeError) as error:
            raise _no_rollout(path, number, json.dumps(record), error) from error
        groups.setdefault(index, group).rollouts.append(rollout)
    return list(groups.values())


def rollout_of(record: dict[str, Any]) -> Rollout:
    """Return the rollout of one line of a rollout file.

    Raises:
        KeyError, TypeError, ValueError: The line is no recorded rollout.
    """
    mask = [bit == "1" for bit in record["loss_mask"]]
    versions = itertools.chain.from_iterable([version] * count for version, count in record["token_versions"])
    reward = None
    if record["reward"] is not None:
        reward = RewardResult(
            total=float(record["reward"]),
            parts=record["reward_parts"],
            is_success=bool(record["is_success"]),
            findings=record["findings"],
            suspicions=record["suspicions"],
            stages=[StageReport(**{**stage, "seconds": _seconds(stage["seconds"])}) for stage in record["stages"]],
            is_by_turn=record["is_by_turn"],
        )
    return Rollout(
        rollout_id=record["rollout_id"],
        task=Task(task_id=record["task_id"], family=record["family"], payload={}, difficulty=record["difficulty"]),
        token_ids=record["token_ids"],
        loss_mask=mask,
        rollout_logprobs=_on_sampled(mask, np.array(record["rollout_logprobs"], dtype=np.float32).tolist(), 0.0),
        token_versions=_on_sampled(mask, list(versions), -1),
        turns=[_turn_of(turn) for turn in record["turns"]],
        prompt=record["prompt"],
        outcome=Outcome(record["outcome"]),
        reason=record["reason"],
        reward=reward,
        metrics=record["metrics"],
        segment_starts=record["segment_starts"],
    )


def _on_sampled(mask: Sequence[bool], values: Sequence[Any], elsewhere: Any) -> list[Any]:
    """Return one value per token, given those of the sampled ones; too few or too many are a ValueError."""
    if len(values) != sum(mask):
        raise ValueError(f"{len(values)} values for {sum(mask)} sampled tokens")
    given = iter(values)
    return [next(given) if is_sampled else elsewhere for is_sampled in mask]


def _of_another_run(rollout: Rollout) -> Rollout:
    """Return a rollout whose versions say nothing here."""
    return replace(rollout, token_versions=[-1] * len(rollout.token_ids))


def _turn_of(turn: dict[str, Any]) -> Turn:
    return Turn(
        completion_text=turn["completion"],
        observations=turn["observations"],
        num_prompt_tokens=turn["num_prompt_tokens"],
        num_completion_tokens=turn["num_completion_tokens"],
        finish_reason=FinishReason(turn["finish_reason"]),
        generate_s=_seconds(turn["generate_s"]),
        environment_s=_seconds(turn["environment_s"]),
        reward=turn["reward"],
    )


def _seconds(value: float | None) -> float:
    """Return seconds; null is what is not known."""
    return math.nan if value is None else value


def _records(paths: Sequence[Path]) -> Iterator[tuple[Path, int, dict[str, Any]]]:
    for path in paths:
        if path.suffix == ".parquet":
            yield from ((path, number, row) for number, row in enumerate(rows_of_parquet(path), 1))
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"Recorded file {path} must be readable text: {error}. Check the path") from error
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise _no_rollout(path, number, line, error) from error
            if not isinstance(record, dict):
                raise _no_rollout(path, number, line, TypeError("no object"))
            yield path, number, record


def _no_rollout(path: Path, number: int, text: str, error: Exception) -> DataError:
    return DataError(
        f"{path}, line {number} must be a recorded rollout or a dialogue, got {text[:60]!r} ({error!r}). Name files of "
        "runs/NAME/rollouts, or rows with messages, or with prompt, completion and label"
    )

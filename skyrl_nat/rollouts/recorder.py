"""Every rollout as one JSON line: text to read, and all that training needs, exactly (`rollouts/recorded.py`)."""

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skyrl_nat.types import Rollout, RolloutGroup

MOST_DIGITS = 9
"""Behind the point, for which all numbers below `LARGEST` are rounded at once: most log-probs have fewer."""
LARGEST = 1e6
_ABANDONED = ".abandoned"


class RolloutRecorder:
    """Writes `<folder>/<label>_<step>.jsonl`; a step played again after a resume replaces its file."""

    def __init__(self, folder: Path) -> None:
        """Make the folder if needed."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, step: int, groups: Sequence[RolloutGroup], label: str = "train") -> Path:
        """Write all rollouts of one batch and return the file's path."""
        path = rollout_file(self._folder, step, label)
        write_groups(path, groups)
        return path

    def write_trained(self, step: int, columns: Mapping[str, NDArray]) -> Path:
        """Write what training said of every sampled token of a step, and return the file's path.

        Args:
            step: Of the run.
            columns: From `batching.trained.trained_columns`.
        """
        path = trained_file(self._folder, step)
        part = path.with_suffix(".part")
        try:
            with part.open("wb") as file:
                np.savez(file, allow_pickle=False, **columns)
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        return path

    def set_aside(self, step: int) -> None:
        """Rename files of later steps, which are played anew: `train_000012.jsonl` becomes `train_000012.abandoned`."""
        for path in [*self._folder.glob("*.jsonl"), *self._folder.glob("*.npz")]:
            found = re.fullmatch(r"[a-z]+_(\d+)", path.stem)
            if found and int(found[1]) > step:
                path.replace(path.with_suffix(_ABANDONED))


def rollout_file(folder: Path, step: int, label: str = "train") -> Path:
    """Return where the rollouts of a step are."""
    return folder / f"{label}_{step:06d}.jsonl"


def trained_file(folder: Path, step: int) -> Path:
    """Return where the tokens of a step are as training saw them."""
    return folder / f"trained_{step:06d}.npz"


def write_groups(path: Path, groups: Sequence[RolloutGroup]) -> None:
    """Write all rollouts of groups, in order; `recorded.read_groups` gives the same groups back.

    The file appears only when it is complete.
    """
    part = path.with_suffix(".part")
    try:
        part.write_bytes(b"".join(map(encode_group, groups)))
        part.replace(path)
    except OSError:
        # What a full disk took of it would stay there for ever.
        part.unlink(missing_ok=True)
        raise


def encode_group(group: RolloutGroup) -> bytes:
    """Return the lines of a group."""
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in group_records(group))
    # A lone surrogate in model text must not lose the batch; it becomes U+FFFD.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def group_records(group: RolloutGroup) -> list[dict[str, Any]]:
    """Return what is written of each rollout: all but the task's payload and hidden part, and the artifact.

    Seconds that are not known (NaN) are null.
    """
    sampled = [list(itertools.compress(rollout.rollout_logprobs, rollout.loss_mask)) for rollout in group.rollouts]
    # All at once: a rollout's own numbers are too few for numpy to be quick with them.
    shortest = iter(shortest_floats(list(itertools.chain.from_iterable(sampled))))
    return [
        _record(rollout, group, list(itertools.islice(shortest, len(logprobs))))
        for rollout, logprobs in zip(group.rollouts, sampled, strict=True)
    ]


def _record(rollout: Rollout, group: RolloutGroup, logprobs: list[float]) -> dict[str, Any]:
    """Return what is written of one rollout, given the log-probs of its sampled tokens."""
    reward = rollout.reward
    return {
        "rollout_id": rollout.rollout_id,
        "task_id": rollout.task.task_id,
        "family": rollout.task.family,
        "group_task_id": group.task.task_id,
        "index": group.index,
        "difficulty": rollout.task.difficulty,
        "outcome": str(rollout.outcome),
        "reason": rollout.reason,
        "reward": None if reward is None else reward.total,
        "reward_parts": {} if reward is None else reward.parts,
        "is_success": reward is not None and reward.is_success,
        "is_by_turn": reward is not None and reward.is_by_turn,
        "findings": [] if reward is None else reward.findings,
        "suspicions": [] if reward is None else reward.suspicions,
        "stages": []
        if reward is None
        else [dataclasses.asdict(stage) | {"seconds": _or_null(stage.seconds)} for stage in reward.stages],
        "score_s": _or_null(group.score_s),
        "num_tokens": len(rollout.token_ids),
        "num_loss_tokens": rollout.num_loss_tokens,
        "oldest_version": rollout.oldest_version,
        "newest_version": max(rollout.token_versions, default=-1),
        "prompt": rollout.prompt,
        "turns": [
            {
                "completion": turn.completion_text,
                "observations": turn.observations,
                "num_prompt_tokens": turn.num_prompt_tokens,
                "num_completion_tokens": turn.num_completion_tokens,
                "finish_reason": str(turn.finish_reason),
                "generate_s": _or_null(turn.generate_s),
                "environment_s": _or_null(turn.environment_s),
                "reward": turn.reward,
            }
            for turn in rollout.turns
        ],
        "metrics": rollout.metrics,
        "segment_starts": rollout.segment_starts,
        "token_ids": rollout.token_ids,
        "loss_mask": "".join("1" if bit else "0" for bit in rollout.loss_mask),
        # Of the sampled tokens only, like the versions: `[version, how many in a row]`.
        "rollout_logprobs": logprobs,
        "token_versions": [
            [version, len(list(run))]
            for version, run in itertools.groupby(itertools.compress(rollout.token_versions, rollout.loss_mask))
        ],
    }


def without_seconds(group: RolloutGroup) -> RolloutGroup:
    """Return a group whose seconds are not known: what is left is the same whenever it is played."""
    return replace(group, score_s=math.nan, rollouts=[_without_seconds(rollout) for rollout in group.rollouts])


def _without_seconds(rollout: Rollout) -> Rollout:
    reward = rollout.reward
    if reward is not None:
        reward = replace(reward, stages=[replace(stage, seconds=math.nan) for stage in reward.stages])
    turns = [replace(turn, generate_s=math.nan, environment_s=math.nan) for turn in rollout.turns]
    return replace(rollout, turns=turns, reward=reward)


def _or_null(seconds: float) -> float | None:
    return None if math.isnan(seconds) else seconds


def shortest_floats(values: Sequence[float]) -> list[float]:
    """Return the decimal numbers with the fewest digits that fp32 rounds to the same values as the given ones."""
    exact = np.array(values, dtype=np.float32)
    wide = exact.astype(np.float64)
    found, is_open = wide.copy(), np.abs(exact) < LARGEST
    others = ~is_open
    for digits in range(MOST_DIGITS + 1):
        rounded = np.round(wide, digits)
        fits = is_open & (rounded.astype(np.float32) == exact)
        found[fits] = rounded[fits]
        is_open &= ~fits
    # Numbers near 0 have more digits behind the point, large ones fewer than none.
    others |= is_open
    found[others] = [float(str(value)) for value in exact[others]]
    return found.tolist()

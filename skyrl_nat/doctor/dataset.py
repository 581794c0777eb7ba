"""Section `data`: files open, ids come once, nothing is held out and trained on, prompts leave room for an answer."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from skyrl_nat.config.run import RunConfig
from skyrl_nat.data.near_duplicates import fingerprint
from skyrl_nat.data.task_faults import FileFaults
from skyrl_nat.data.task_files import find_files
from skyrl_nat.data.task_reader import scan_tasks
from skyrl_nat.doctor.check import Check, none_of, skipped
from skyrl_nat.errors import DataError
from skyrl_nat.rollouts.recorded import count_groups
from skyrl_nat.types import Task

NUM_SAMPLED = 32
"""Tasks of a split whose prompts are looked at, evenly spread."""
PROMPTS = "longest prompt, in tokens"
_LEAKS = ("held-out ids that are trained on", "held-out tasks whose content is trained on")


@dataclass(kw_only=True, slots=True)
class Split:
    """What a set of files holds; of most tasks only ids and contents are kept."""

    num_files: int = 0
    num_left_out: int = 0
    """Tasks above `environment.max_difficulty`."""
    ids: list[str] = field(default_factory=list[str])
    contents: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Id -> digest of what the policy sees."""
    sample: list[Task] = field(default_factory=list[Task])
    """Evenly spread."""
    fault: str = ""
    """Why files or rows cannot be used; empty where all can."""


def read_split(names: Sequence[str], *, family: str, max_difficulty: int) -> Split:
    """Read all files once.

    Args:
        names: Paths, folders, patterns or `builtin:` names.
        family: Rows of another one are faults.
        max_difficulty: Tasks above it are left out.
    """
    faults, split = FileFaults(), Split()
    files = find_files(names, faults)
    stride = max(1, -(-sum(file.num_rows for file in files) // NUM_SAMPLED))
    for batch in scan_tasks(files, family, faults):
        for task in batch:
            if task.difficulty > max_difficulty:
                split.num_left_out += 1
                continue
            if len(split.ids) % stride == 0:
                split.sample.append(task)
            split.ids.append(task.task_id)
            split.contents[task.task_id] = hashlib.sha256(fingerprint(task).encode()).digest()[:16]
    split.num_files = faults.num_files
    try:
        faults.check()
    except DataError as error:
        split.fault = " ".join(str(error).split())
    return split


def check_splits(config: RunConfig, train: Split | None, held_out: Split) -> list[Check]:
    """Return the checks of what the files hold.

    Args:
        config: The run.
        train: None where recorded rollouts are learned from.
        held_out: For evaluation.
    """
    limit = config.environment.max_difficulty
    checks = [_opens("held-out tasks", held_out, limit), *_twice("held-out tasks", held_out)]
    if train is None:
        reason = "rollouts of earlier runs are learned from (environment.recorded_files)"
        number = count_groups([Path(name) for name in config.environment.recorded_files])
        return [*checks, *(skipped(name, reason) for name in _LEAKS), check_steps(config, number)]
    return [
        _opens("training tasks", train, limit),
        *checks,
        *_twice("training tasks", train),
        *check_leaks(train, held_out),
        check_steps(config, len(train.ids)),
    ]


def check_leaks(train: Split, held_out: Split) -> list[Check]:
    """Return whether a held-out task is trained on, by its id or by what it asks for."""
    advice = "Split again: what was trained on says nothing about the policy"
    shared = sorted(set(train.ids) & set(held_out.ids))
    known = {content: name for name, content in train.contents.items()}
    same = [
        f"{name} is {known[content]}"
        for name, content in held_out.contents.items()
        if content in known and name not in shared
    ]
    return [
        none_of("", _LEAKS[0], shared, advice=advice, is_needed=True),
        none_of("", _LEAKS[1], same, advice=advice),
    ]


def check_steps(config: RunConfig, num_tasks: int) -> Check:
    """Return whether the tasks give at least one step."""
    steps = config.total_steps(num_tasks)
    return Check(
        name="steps of the run",
        expected=">= 1",
        found=f"{steps:,} with {num_tasks:,} tasks, {config.trainer.tasks_per_step} a step",
        is_ok=steps >= 1 and num_tasks > 0,
        advice="Add tasks, or lower trainer.tasks_per_step",
        is_needed=True,
    )


def check_prompts(config: RunConfig, lengths: Mapping[str, int]) -> Check:
    """Return whether prompts leave room for an answer.

    Args:
        config: The run.
        lengths: Task id -> tokens of its first prompt.
    """
    rollout = config.rollout
    limit = rollout.max_total_tokens - 1
    longest = max(lengths, key=lambda name: lengths[name])
    short = sum(length + rollout.max_new_tokens > rollout.max_total_tokens for length in lengths.values())
    cut = f"; {short} leave less than rollout.max_new_tokens={rollout.max_new_tokens}" if short else ""
    return Check(
        name=f"{PROMPTS}, of {len(lengths)} tasks",
        expected=f"<= {limit:,} (rollout.max_total_tokens - 1)",
        found=f"{lengths[longest]:,} ({longest}){cut}",
        is_ok=lengths[longest] <= limit,
        advice="Raise rollout.max_total_tokens, or leave such tasks out",
        is_needed=True,
    )


def _opens(what: str, split: Split, max_difficulty: int) -> Check:
    number = f"{len(split.ids):,} tasks in {split.num_files} files"
    left_out = f", {split.num_left_out:,} above max_difficulty={max_difficulty} left out" if split.num_left_out else ""
    return Check(
        name=f"{what}: files open, each row is a task",
        expected=">= 1, no fault",
        found=split.fault or number + left_out,
        is_ok=not split.fault and bool(split.ids),
        advice="Mend or leave out the files, or raise environment.max_difficulty",
        is_needed=True,
    )


def _twice(what: str, split: Split) -> list[Check]:
    """Return the checks of what comes more than once: an id is a fault, the same request under two ids a fact."""
    ids = [f"{name} ({count}x)" for name, count in Counter(split.ids).items() if count > 1]
    same = sum(count - 1 for count in Counter(split.contents.values()).values())
    advice = "Rename them, or name each file once"
    return [
        none_of("", f"{what}: ids that come twice", ids, advice=advice, is_needed=True),
        Check(name=f"{what}: contents that come twice", expected="", found=str(same), is_ok=None),
    ]

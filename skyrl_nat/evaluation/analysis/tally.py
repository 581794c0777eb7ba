"""One pass over the rollout files of a run: a file is read, counted and forgotten."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.analysis.failures import Clusters, Stage, add_stages, plain
from skyrl_nat.evaluation.analysis.rollout_table import RolloutTable
from skyrl_nat.rollouts.recorded import read_groups
from skyrl_nat.types import RolloutGroup

LAST_STEPS = 5
"""Of which the groups are shown."""
MAX_NAME_CHARS = 24
"""Of a task beside its row."""


@dataclass(slots=True)
class Tally:
    """What the recorded rollouts of one kind say."""

    table: RolloutTable = field(default_factory=RolloutTable)
    failures: Clusters = field(default_factory=Clusters)
    suspicions: Clusters = field(default_factory=Clusters)
    stages: dict[str, Stage] = field(default_factory=dict[str, Stage])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    last_groups: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Rewards of the groups of the last steps."""

    def add(self, step: int, group: RolloutGroup, *, is_held_out: bool = False) -> None:
        """Count a group."""
        self.table.add(step, group, is_held_out=is_held_out)
        for rollout in group.rollouts:
            self.outcomes[str(rollout.outcome)] += 1
            if rollout.reward is not None:
                self.failures.add(step, rollout, rollout.reward.findings)
                self.suspicions.add(step, rollout, rollout.reward.suspicions)
                add_stages(self.stages, step, rollout.reward)


def tally(files: list[tuple[int, Path]], notes: list[str], *, is_held_out: bool = False) -> Tally:
    """Count the rollouts of files.

    Args:
        files: Step and path, in order.
        notes: Takes a sentence if some cannot be read.
        is_held_out: Whether they are of evaluations, in which a screened rollout is a failure.
    """
    found, broken = Tally(), list[DataError]()
    for number, (step, path) in enumerate(files):
        try:
            groups = read_groups(path)
        except DataError as error:
            broken.append(error)
            continue
        for group in groups:
            found.add(step, group, is_held_out=is_held_out)
            if number >= len(files) - LAST_STEPS:
                name = f"step {step} · {plain(group.task.task_id[-MAX_NAME_CHARS:])} · {group.index}"
                found.last_groups[name] = [r.reward.total for r in group.valid_rollouts if r.reward is not None]
    if broken:
        reason = str(broken[0]).partition(" must be ")[0].rpartition("/")[2]
        notes.append(f"{len(broken)} of {len(files)} rollout files are torn and left out, the first: {plain(reason)}.")
    return found

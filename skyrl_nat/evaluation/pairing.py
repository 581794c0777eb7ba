"""Joining two evaluations by the tasks' ids, never by position.

What infrastructure or validator lost has no score (`scores.py`): it is in no mean, it is counted, and two evaluations
that lost very different shares are not compared.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.scores import TaskScore, judged, score_of
from skyrl_nat.evaluation.statistics import mean
from skyrl_nat.types import Outcome, RolloutGroup, Task

MAX_IDS_NAMED = 10
"""Ids that an error names before it only counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One task that both sides have a score for."""

    task: Task
    """Without the hidden part."""
    before: TaskScore
    after: TaskScore


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One evaluation, as far as the comparison could use it; ids are sorted."""

    num_tasks: int
    """Tasks given, each counted once."""
    unpaired: tuple[str, ...]
    """Tasks that the other side lacks."""
    repeated: tuple[str, ...]
    """Tasks given more than once, with equal scores; counted once."""
    without_verdict: tuple[str, ...]
    """Tasks of which infrastructure or validator failures left nothing; in no mean of either side."""
    lost_share: float
    """Mean over tasks of the share of rollouts lost in that way."""
    num_finished: int
    """Paired tasks of which a rollout finished."""
    finished_success: float | None
    """Mean success over those: flattering, since what broke off is left out; None where there are none."""
    rollouts_by_outcome: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Two evaluations, task by task."""

    pairs: tuple[Pair, ...]
    """In the order of the ids."""
    before: Side
    after: Side


@dataclass(frozen=True, slots=True)
class _Played:
    """One side, every task once."""

    groups: dict[str, RolloutGroup]
    scores: dict[str, TaskScore | None]
    repeated: list[str]

    @property
    def without_verdict(self) -> tuple[str, ...]:
        return tuple(sorted(task_id for task_id, score in self.scores.items() if score is None))

    @property
    def lost_share(self) -> float:
        return mean(map(_lost_share, self.groups.values()))


def join(
    before: Sequence[RolloutGroup],
    after: Sequence[RolloutGroup],
    *,
    max_unmatched_share: float,
    max_lost_gap: float,
) -> Joined:
    """Pair two evaluations; their order does not matter.

    Args:
        before: One group a task.
        after: The same tasks, played by another policy.
        max_unmatched_share: Most tasks that one side lacks or that are given more than once, as a share of all ids.
        max_lost_gap: Largest difference of the sides' shares of rollouts lost to infrastructure or validator.

    Raises:
        DataError: A task is given twice with different scores, or is not the same on both sides; too many are
            unmatched; the lost shares are too far apart; no task has a verdict on both sides.
    """
    sides = [_played_once(groups, name) for groups, name in ((before, "before"), (after, "after"))]
    first, second = sides
    _refuse_unmatched(first, second, max_unmatched_share)
    _refuse_other_tasks(first, second)
    _refuse_lost_gap(first, second, max_lost_gap)
    pairs = []
    for task_id in sorted(first.groups.keys() & second.groups.keys()):
        earlier, later = first.scores[task_id], second.scores[task_id]
        if earlier is not None and later is not None:
            pairs.append(Pair(task=first.groups[task_id].task.visible(), before=earlier, after=later))
    if not pairs:
        raise DataError(
            f"A comparison needs a task with a verdict on both sides, got {len(first.groups)} tasks before and "
            f"{len(second.groups)} after and none of them. Evaluate again: tasks without a verdict are played again"
        )
    return Joined(
        pairs=tuple(pairs),
        before=_side(first, second, [pair.before for pair in pairs]),
        after=_side(second, first, [pair.after for pair in pairs]),
    )


def _side(own: _Played, other: _Played, paired: Sequence[TaskScore]) -> Side:
    finished = [score.finished_success for score in paired if score.finished_success is not None]
    outcomes = Counter(str(rollout.outcome) for group in own.groups.values() for rollout in group.rollouts)
    return Side(
        num_tasks=len(own.groups),
        unpaired=tuple(sorted(own.groups.keys() - other.groups.keys())),
        repeated=tuple(own.repeated),
        without_verdict=own.without_verdict,
        lost_share=own.lost_share,
        num_finished=len(finished),
        finished_success=mean(finished) if finished else None,
        rollouts_by_outcome=dict(sorted(outcomes.items())),
    )


def _played_once(groups: Sequence[RolloutGroup], name: str) -> _Played:
    if not groups:
        raise DataError(f"A comparison needs tasks on both sides, got none {name}. Evaluate that policy first")
    by_id: dict[str, list[RolloutGroup]] = defaultdict(list)
    for group in groups:
        by_id[group.task.task_id].append(group)
    repeated = sorted(task_id for task_id, found in by_id.items() if len(found) > 1)
    unequal = [
        task_id
        for task_id in repeated
        if any(_record(group) != _record(by_id[task_id][0]) for group in by_id[task_id][1:])
    ]
    if unequal:
        raise DataError(
            f"A task given more than once must be the same with the same score each time, {name} has others for "
            f"{_named(unequal)}. Keep one row of each"
        )
    scores = {task_id: score_of(found[0]) for task_id, found in by_id.items()}
    return _Played({task_id: found[0] for task_id, found in by_id.items()}, scores, repeated)


def _record(group: RolloutGroup) -> tuple[Task, TaskScore | None, Counter[Outcome]]:
    """Return all that a comparison reads of a group."""
    return group.task.visible(), score_of(group), Counter(rollout.outcome for rollout in group.rollouts)


def _refuse_unmatched(first: _Played, second: _Played, max_share: float) -> None:
    missing, extra = first.groups.keys() - second.groups.keys(), second.groups.keys() - first.groups.keys()
    repeated = {*first.repeated, *second.repeated}
    share = len(missing | extra | repeated) / len(first.groups.keys() | second.groups.keys())
    if share > max_share:
        raise DataError(
            f"At most {max_share:.3g} of all tasks may be on one side only or given more than once, got {share:.3g}: "
            f"only before {_named(missing)}; only after {_named(extra)}; more than once {_named(repeated)}. "
            "Evaluate both policies on the same tasks"
        )


def _refuse_other_tasks(first: _Played, second: _Played) -> None:
    others = [
        task_id
        for task_id in first.groups.keys() & second.groups.keys()
        if first.groups[task_id].task.visible() != second.groups[task_id].task.visible()
    ]
    if others:
        raise DataError(
            f"An id must stand for the same task before and after, family, difficulty and payload differ for "
            f"{_named(others)}. Evaluate both policies on the same task file"
        )


def _refuse_lost_gap(first: _Played, second: _Played, max_gap: float) -> None:
    earlier, later = first.lost_share, second.lost_share
    if abs(later - earlier) > max_gap:
        lost = [_named(side.without_verdict) for side in (first, second)]
        raise DataError(
            f"The shares of rollouts lost to infrastructure or validator failures must differ by at most {max_gap:.3g}"
            f", got {earlier:.3g} before and {later:.3g} after; tasks without a verdict: before {lost[0]}, "
            f"after {lost[1]}. Evaluate again, which plays only those again"
        )


def _lost_share(group: RolloutGroup) -> float:
    return 1.0 - len(judged(group)) / len(group.rollouts) if group.rollouts else 1.0


def _named(ids: Collection[str]) -> str:
    named = ", ".join(sorted(ids)[:MAX_IDS_NAMED])
    rest = f" and {len(ids) - MAX_IDS_NAMED} more" if len(ids) > MAX_IDS_NAMED else ""
    return f"{named}{rest}" if ids else "none"

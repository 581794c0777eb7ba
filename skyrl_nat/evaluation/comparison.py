"""Two policies on the same tasks: is the second one better, and how sure is that?"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from skyrl_nat.evaluation.measures import ComparisonSettings, Measure, Values, measures_of
from skyrl_nat.evaluation.pairing import Pair, Side, join
from skyrl_nat.evaluation.scores import TaskScore
from skyrl_nat.evaluation.verdict import Verdict, verdict_of, verdict_of_both
from skyrl_nat.types import RolloutGroup, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All that two evaluations say about each other; the same for every order of tasks and rollouts."""

    verdict: Verdict
    """Of success; of the reward where every task's success is as before."""
    success_verdict: Verdict
    reward_verdict: Verdict
    num_tasks: int
    """Tasks with a verdict on both sides: all means are over these."""
    success: Measure
    """Over all of them: what the policy broke off counts as wrong. Beside it, `Side.finished_success`."""
    reward: Measure
    before: Side
    after: Side
    gained: tuple[str, ...]
    """Ids of tasks whose success rose, sorted."""
    lost: tuple[str, ...]
    """Ids of tasks whose success fell, sorted."""
    success_by_difficulty: dict[str, Measure]
    """Level -> measure; each of these five is corrected for its number of measures."""
    reward_by_difficulty: dict[str, Measure]
    success_by_family: dict[str, Measure]
    reward_by_family: dict[str, Measure]
    parts: dict[str, Measure]
    """Reward part -> measure, over the tasks that have it on both sides."""
    settings: ComparisonSettings
    """Level, draws, seed and bounds that led to these numbers."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data.

        Raises:
            ValueError: A number is not finite, which no comparison may hold.
        """
        return json.loads(json.dumps(asdict(self), allow_nan=False))


def compare(
    before: Sequence[RolloutGroup],
    after: Sequence[RolloutGroup],
    *,
    settings: ComparisonSettings | None = None,
) -> Comparison:
    """Compare what two policies scored on the same tasks.

    Args:
        before: One group a task, of one greedy rollout or several, in any order.
        after: The same tasks by the other policy.
        settings: None for the defaults.

    Raises:
        DataError: The two cannot be compared; see `pairing.join`.
    """
    settings = settings or ComparisonSettings()
    joined = join(before, after, max_unmatched_share=settings.max_unmatched_share, max_lost_gap=settings.max_lost_gap)
    pairs = joined.pairs
    success, reward = (measures_of([read(pairs)], settings)[0] for read in (success_values, reward_values))
    return Comparison(
        verdict=verdict_of_both(success, reward, settings),
        success_verdict=verdict_of(success, settings),
        reward_verdict=verdict_of(reward, settings),
        num_tasks=len(pairs),
        success=success,
        reward=reward,
        before=joined.before,
        after=joined.after,
        gained=tuple(pair.task.task_id for pair in pairs if pair.after.success > pair.before.success),
        lost=tuple(pair.task.task_id for pair in pairs if pair.after.success < pair.before.success),
        success_by_difficulty=_by(pairs, _level, success_values, settings),
        reward_by_difficulty=_by(pairs, _level, reward_values, settings),
        success_by_family=_by(pairs, _family, success_values, settings),
        reward_by_family=_by(pairs, _family, reward_values, settings),
        parts=_parts(pairs, settings),
        settings=settings,
    )


def _by(
    pairs: Sequence[Pair],
    key: Callable[[Task], str],
    read: Callable[[Sequence[Pair]], Values],
    settings: ComparisonSettings,
) -> dict[str, Measure]:
    """Return a measure for each kind of task, corrected together."""
    kinds: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        kinds[key(pair.task)].append(pair)
    names = sorted(kinds)
    return dict(zip(names, measures_of([read(kinds[name]) for name in names], settings), strict=True))


def _parts(pairs: Sequence[Pair], settings: ComparisonSettings) -> dict[str, Measure]:
    """Return a measure for each reward part that some task has on both sides, corrected together."""
    names = sorted({name for pair in pairs for name in pair.before.parts.keys() & pair.after.parts.keys()})
    family = [
        _values(name, [pair for pair in pairs if name in pair.before.parts and name in pair.after.parts], _part(name))
        for name in names
    ]
    return dict(zip(names, measures_of(family, settings), strict=True))


def _values(name: str, pairs: Sequence[Pair], read: Callable[[TaskScore], float], is_share: bool = False) -> Values:
    return Values(
        name=name,
        before=[read(pair.before) for pair in pairs],
        after=[read(pair.after) for pair in pairs],
        is_share=is_share,
    )


def success_values(pairs: Sequence[Pair]) -> Values:
    """Return the success of every task on both sides."""
    return _values("success", pairs, lambda score: score.success, is_share=True)


def reward_values(pairs: Sequence[Pair]) -> Values:
    """Return the reward of every task on both sides."""
    return _values("reward", pairs, lambda score: score.reward)


def _part(name: str) -> Callable[[TaskScore], float]:
    return lambda score: score.parts[name]


def _level(task: Task) -> str:
    return str(task.difficulty)


def _family(task: Task) -> str:
    return task.family

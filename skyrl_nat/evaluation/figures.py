"""What an evaluation says of a model: shares and means with their intervals, from the groups that were played."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from skyrl_nat.evaluation.evaluator import summarize
from skyrl_nat.evaluation.scores import TaskScore, judged, score_of, success
from skyrl_nat.evaluation.statistics import Interval, bootstrap_interval, mean, pass_at_k, wilson_interval
from skyrl_nat.types import Outcome, RolloutGroup

Figure = dict[str, float | int | str | None]
Scored = list[tuple[RolloutGroup, TaskScore]]


def figures(groups: Sequence[RolloutGroup]) -> dict[str, Any]:
    """Return all figures of some groups as JSON data.

    Every task counts once, with the mean over its rollouts. A failure of the policy is a failure. A rollout without a
    verdict says nothing of the policy: it is counted, and in no mean; `num_without_verdict` tells of tasks that have
    none at all, which are played again when the evaluation is started anew.
    """
    scored = [(group, score) for group in groups if (score := score_of(group)) is not None]
    finished = [score.finished_success for _, score in scored if score.finished_success is not None]
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    summary = summarize(0, groups)
    return {
        "num_tasks": len(groups),
        "num_rollouts": len(rollouts),
        "num_without_verdict": summary.num_without_verdict,
        "success": success_of(scored),
        "success_of_finished": {"value": mean(finished) if finished else None, "n": len(finished)},
        "reward": reward_of(scored),
        "parts": summary.parts,
        "outcomes": {str(outcome): sum(rollout.outcome is outcome for rollout in rollouts) for outcome in Outcome},
        "by_difficulty": _by(scored, lambda group: f"level {group.task.difficulty}"),
        "by_family": _by(scored, lambda group: group.task.family),
        "pass_at_k": passes([group for group, _ in scored]),
        "metrics": summary.metrics,
    }


def success_of(scored: Scored) -> Figure:
    """Return the share of successes: Wilson's interval of one rollout per task, the bootstrap's over tasks of more."""
    shares = [score.success for _, score in scored]
    if shares and all(share in (0.0, 1.0) for share in shares):
        return _figure(shares, wilson_interval(int(sum(shares)), len(shares)))
    return _figure(shares, bootstrap_interval(shares) if shares else None)


def reward_of(scored: Scored) -> Figure:
    """Return the mean reward with the bootstrap's interval over tasks."""
    rewards = [score.reward for _, score in scored]
    return _figure(rewards, bootstrap_interval(rewards) if rewards else None)


def passes(groups: Sequence[RolloutGroup]) -> dict[str, Figure]:
    """Return pass@k for k = 1, 2, 4, … up to the number of rollouts that every task has; nothing of one rollout."""
    counts = [(len(found), sum(map(bool, map(success, found)))) for found in map(judged, groups)]
    fewest, k, found = min((number for number, _ in counts), default=0), 1, {}
    while k <= fewest and fewest > 1:
        chances = [pass_at_k(number, correct, k) for number, correct in counts]
        found[str(k)] = _figure(chances, bootstrap_interval(chances))
        k *= 2
    return found


def _by(scored: Scored, key: Callable[[RolloutGroup], str]) -> dict[str, dict[str, Figure]]:
    kinds: dict[str, Scored] = defaultdict(list)
    for group, score in scored:
        kinds[key(group)].append((group, score))
    return {
        name: {"success": success_of(members), "reward": reward_of(members)} for name, members in sorted(kinds.items())
    }


def _figure(values: Sequence[float], interval: Interval | None) -> Figure:
    if interval is None:
        return {"value": None, "low": None, "high": None, "n": 0, "method": "", "note": "no task has a verdict"}
    return {
        "value": mean(values),
        "low": interval.low,
        "high": interval.high,
        "n": len(values),
        "method": interval.method,
        "note": interval.note,
    }

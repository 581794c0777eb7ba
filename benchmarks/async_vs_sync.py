"""Time steps with long-tailed rollouts, synchronous and asynchronous (bars P5 and I4).

usage: python benchmarks/async_vs_sync.py MODEL_FOLDER --output FILE [--bar P5] [--tasks 32] [--rollouts 8]
       [--mean 192] [--steps 8] [--variants s0 s1 s2 colocated] [--splits 1+1] [--limit-s 140] [OVERRIDES ...]

s0, s1 and s2 have engines and policy on cards of their own, and staleness 0, 1, 2; colocated has both on all. A split
is cards of engines + cards of the policy; several give variants like `6+2-s1`. Lengths are lognormal with the longest
at 8 means (`lognormal_story.py`), rollout for rollout the same in all variants. The first two steps are left out; 6
more are whole rounds for every staleness, since batches that began together end together. The value is the mean step of
s0 over that of the quickest of s1 and s2, each in its best split: all trained the same rollouts, and as steps overlap a
median would hide waiting. P5 is that on two cards, I4 on eight. `plan` of a variant is what its step was expected to
take; beside the quickest (`winner`) stands the layout that the planner recommends, among the variants or not.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bars import attempt, parse, write_result
from lognormal_story import LONGEST, MEAN, SPREAD, limit_of
from planned import planned, story
from story_run import account, layout, story_overrides, train

TARGET = 1.4
AHEAD = ("s1", "s2")
WARM_UP = 2


def places(splits: list[str], variants: list[str]) -> dict[str, list[str]]:
    """Return cards and staleness of each variant as overrides, by its name; a split is named where there are several.

    Args:
        splits: Each is cards of engines + cards of the policy.
        variants: `colocated`, or `s` and a staleness.
    """
    found: dict[str, list[str]] = {}
    for split in splits:
        engines, policy = map(int, split.split("+"))
        for name in variants:
            is_apart = name != "colocated"
            cards = layout(num_gpus=engines + policy, is_apart=is_apart, num_policy_ranks=policy)
            full = f"{split}-{name}" if is_apart and len(splits) > 1 else name
            found[full] = [*cards, f"trainer.staleness={name[1:] if is_apart else 0}"]
    return found


def variant(
    name: str, place: list[str], folder: Path, options: argparse.Namespace, overrides: list[str]
) -> dict[str, Any]:
    """Run one variant, at its place from `places`, and return what its steps took."""
    longest = LONGEST * options.mean
    chosen = [
        *place,
        f"model.path={options.model}",
        f"trainer.tasks_per_step={options.tasks}",
        f"trainer.rollouts_per_task={options.rollouts}",
        f"trainer.micro_batch_tokens={max(32768, longest + 256)}",
        "rollout.harness=lognormal_story:make_harness",
        f"rollout.max_new_tokens={longest}",
        f"rollout.max_total_tokens={longest + 256}",
        *overrides,
        *story_overrides(name, folder, options.steps, options.tasks * options.steps),
    ]
    lengths = story(options.mean, longest=longest, spread=SPREAD)
    plan = attempt(f"{name}, plan", lambda: planned(chosen, lengths))
    run = train(folder / name, chosen, options.limit_s)
    measured = run.steps[WARM_UP:]
    if not measured:
        raise RuntimeError(run.error or f"more than {WARM_UP} steps are needed")
    seconds = [step["time/step_s"] for step in measured]
    trained = [step["rollout/completion_tokens/mean"] for step in run.steps]
    limits = [
        limit_of(index, number, options.mean)
        for index in range(options.tasks * len(run.steps))
        for number in range(options.rollouts)
    ]
    tokens = sum(step["batch/num_trained_tokens"] for step in measured)
    return {
        "overrides": chosen,
        "plan": plan,
        "error": run.error,
        "alarms": run.alarms,
        "step_mean_s": statistics.mean(seconds),
        "step_median_s": statistics.median(seconds),
        "steps_s": seconds,
        "tokens_per_s": tokens / sum(seconds),
        "account": account(measured),
        "staleness_mean": statistics.mean(step["rollout/staleness/mean"] for step in measured),
        "staleness_max": max(step["rollout/staleness/max"] for step in run.steps),
        "stale_groups": sum(step["rollout/stale_groups/count"] for step in run.steps),
        "dropped_groups": sum(step["rollout/dropped_groups/count"] for step in run.steps),
        "trained_mean_tokens": statistics.mean(trained),
        "planned_mean_tokens": statistics.mean(limits),
        "planned_longest_tokens": max(limits),
        "trained_over_planned": statistics.mean(trained) / statistics.mean(limits),
    }


def main() -> int:
    """Measure all variants and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--bar", choices=("P5", "I4"), default="P5")
    parser.add_argument("--tasks", type=int, default=32)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--mean", type=int, default=192, help="tokens of a rollout")
    parser.add_argument("--steps", type=int, default=8, help="of each variant, the first two included")
    parser.add_argument("--variants", nargs="+", default=["s0", "s1", "s2", "colocated"])
    parser.add_argument("--splits", nargs="+", default=["1+1"], help="cards of engines + cards of the policy")
    parser.add_argument("--limit-s", type=float, default=140, help="of each variant, its start included")
    options, overrides = parse(parser)
    os.environ[MEAN] = str(options.mean)
    with tempfile.TemporaryDirectory() as folder:
        found = {
            name: attempt(name, lambda name=name, place=place: variant(name, place, Path(folder), options, overrides))
            for name, place in places(options.splits, options.variants).items()
        }
    seconds = {name: row["step_mean_s"] for name, row in found.items() if "step_mean_s" in row}
    ahead = [time for name, time in seconds.items() if name.endswith(AHEAD)]
    in_step = [time for name, time in seconds.items() if name.endswith("s0")]
    value = min(in_step) / min(ahead) if ahead and in_step else None
    winner = min(seconds, key=lambda name: seconds[name], default=None)
    # With engines apart, a plan's colocated layouts would have their share of memory.
    plans = [row["plan"] for row in (found.get("colocated", {}), *found.values()) if "plan" in row]
    recommended = next((plan["recommended"] for plan in plans if "recommended" in plan), None)
    raw = {"winner": winner, "recommended": recommended, "variants": found}
    unit = "step with staleness 0 / best step with staleness 1 or 2, engine and policy on cards of their own"
    is_met = value is not None and value >= TARGET
    write_result(options.output, options.bar, value, unit, TARGET, is_met=is_met, raw=raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())

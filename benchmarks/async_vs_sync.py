"""Time steps on two cards with long-tailed rollouts, synchronous and asynchronous (bar P5).

usage: python benchmarks/async_vs_sync.py MODEL_FOLDER --output FILE [--tasks 32] [--rollouts 8] [--mean 192]
       [--steps 8] [--variants s0 s1 s2 colocated] [--limit-s 140] [OVERRIDES ...]

s0, s1 and s2 have the policy on the first card, the engine on the second, and staleness 0, 1, 2; colocated has both on
both. Lengths are lognormal with the longest at 8 means (`lognormal_story.py`), rollout for rollout the same in all
variants. The first two steps are left out; 6 more are whole rounds for every staleness, since batches that began
together end together. The value is the mean step of s0 over that of the quickest of s1 and s2:
all trained the same rollouts, and as steps overlap a median would hide waiting.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bars import attempt, parse, write_result
from lognormal_story import LONGEST, MEAN, limit_of
from story_run import account, layout, story_overrides, train

TARGET = 1.4
WARM_UP = 2


def variant(name: str, folder: Path, options: argparse.Namespace, overrides: list[str]) -> dict[str, Any]:
    """Run one variant and return what its steps took."""
    is_apart = name != "colocated"
    longest = LONGEST * options.mean
    chosen = [
        *layout(num_gpus=2, is_apart=is_apart),
        f"model.path={options.model}",
        f"trainer.staleness={name[1:] if is_apart else 0}",
        f"trainer.tasks_per_step={options.tasks}",
        f"trainer.rollouts_per_task={options.rollouts}",
        f"trainer.micro_batch_tokens={max(32768, longest + 256)}",
        "rollout.harness=lognormal_story:make_harness",
        f"rollout.max_new_tokens={longest}",
        f"rollout.max_total_tokens={longest + 256}",
        *overrides,
        *story_overrides(name, folder, options.steps, options.tasks * options.steps),
    ]
    run = train(folder / name, chosen, options.limit_s)
    measured = run.steps[WARM_UP:]
    if not measured:
        raise RuntimeError(run.error or f"more than {WARM_UP} steps are needed")
    seconds = [step["time/step_s"] for step in measured]
    trained = [step["rollout/completion_tokens/mean"] for step in run.steps]
    planned = [
        limit_of(index, number, options.mean)
        for index in range(options.tasks * len(run.steps))
        for number in range(options.rollouts)
    ]
    tokens = sum(step["batch/num_trained_tokens"] for step in measured)
    return {
        "overrides": chosen,
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
        "planned_mean_tokens": statistics.mean(planned),
        "planned_longest_tokens": max(planned),
        "trained_over_planned": statistics.mean(trained) / statistics.mean(planned),
    }


def main() -> int:
    """Measure all variants and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=32)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--mean", type=int, default=192, help="tokens of a rollout")
    parser.add_argument("--steps", type=int, default=8, help="of each variant, the first two included")
    parser.add_argument("--variants", nargs="+", default=["s0", "s1", "s2", "colocated"])
    parser.add_argument("--limit-s", type=float, default=140, help="of each variant, its start included")
    options, overrides = parse(parser)
    os.environ[MEAN] = str(options.mean)
    with tempfile.TemporaryDirectory() as folder:
        found = {
            name: attempt(name, lambda name=name: variant(name, Path(folder), options, overrides))
            for name in options.variants
        }
    seconds = {name: row["step_mean_s"] for name, row in found.items() if "step_mean_s" in row}
    ahead = [seconds[name] for name in ("s1", "s2") if name in seconds]
    value = seconds["s0"] / min(ahead) if ahead and "s0" in seconds else None
    winner = min(seconds, key=lambda name: seconds[name], default=None)
    raw = {"winner": winner, "variants": found}
    unit = "step with staleness 0 / best step with staleness 1 or 2, engine and policy on cards of their own"
    write_result(options.output, "P5", value, unit, TARGET, is_met=value is not None and value >= TARGET, raw=raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())

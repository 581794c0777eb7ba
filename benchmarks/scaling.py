"""How training and rollouts scale over the cards of a machine, at the same work for every card (bar I2).

usage: python benchmarks/scaling.py MODEL_FOLDER --output FILE [--cards 1 2 4 8] [--tasks 16] [--rollouts 8]
       [--tokens 1024] [--steps 3] [OVERRIDES ...]

`--tasks` is of one card. Every number of cards is a run of its own, a policy rank and an engine on each card. An
efficiency is tokens a second and card over those of the fewest cards, in the seconds of training or of playing. The
value is the least of all training efficiencies over 0.9 and all rollout efficiencies over 0.95: 1 where both bars are
just met.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from bars import add_work, attempt, parse, write_result
from planned import planned, story
from story_run import layout, measure, work_overrides

BARS = {"train": 0.9, "rollout": 0.95}


def run_on(cards: int, folder: Path, options: argparse.Namespace, overrides: list[str]) -> dict[str, Any]:
    """Run on so many cards."""
    work = argparse.Namespace(**{**vars(options), "tasks": options.tasks * cards})
    chosen = [
        *layout(num_gpus=cards),
        *work_overrides(work, budget=16384),
        f"rollout.max_concurrent_rollouts={work.tasks * work.rollouts}",
        *overrides,
    ]
    lengths = story(options.tokens, longest=options.tokens, spread=0.0)
    plan = attempt("plan", lambda: planned(chosen, lengths))
    return {"overrides": chosen, "plan": plan, **measure(f"cards-{cards}", options.steps, folder, chosen)}


def efficiencies(runs: dict[int, dict[str, Any]]) -> dict[int, dict[str, float]]:
    """Return the efficiencies of training and rollout by number of cards.

    Args:
        runs: From `run_on`, by number of cards, the fewest first.
    """
    rates = {cards: {part: run["completion_tokens"] / run[part] for part in BARS} for cards, run in runs.items()}
    first = next(iter(rates.values()))
    return {cards: {part: rate[part] / first[part] for part in BARS} for cards, rate in rates.items()}


def verdict(found: dict[int, dict[str, float]]) -> float | None:
    """Return the least efficiency over its bar, of more cards than the fewest; None where nothing was compared."""
    return min((row[part] / BARS[part] for row in list(found.values())[1:] for part in BARS), default=None)


def main() -> int:
    """Measure every number of cards and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_work(parser)
    parser.set_defaults(tasks=16, tokens=1024)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--cards", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--steps", type=int, default=3, help="measured ones; the first is not")
    options, overrides = parse(parser)
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            cards: attempt(f"{cards} cards", lambda cards=cards: run_on(cards, Path(folder), options, overrides))
            for cards in sorted(options.cards)
        }
    found = {} if any("error" in run for run in runs.values()) else efficiencies(runs)
    value = verdict(found)
    unit = f"least of training efficiency / 0.9 and rollout efficiency / 0.95, {', '.join(map(str, runs))} cards"
    raw = {"efficiencies": found, "runs": runs}
    write_result(options.output, "I2", value, unit, 1.0, is_met=value is not None and value >= 1.0, raw=raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())

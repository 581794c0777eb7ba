"""Evaluate a trained run as the baseline was evaluated, and say whether it is better.

usage: compare_baseline_trained.py BASELINE RUN [--checkpoint latest] [--samples 0] [key=value ...]

BASELINE is a folder of `collect_baseline.py`. The run is played on its own held-out tasks; the page of the comparison
lies beside its evaluation.
"""

import argparse
import sys
from pathlib import Path

from skyrl_nat.cli import main


def steps_of(arguments: list[str] | None = None) -> list[list[str]]:
    """Return the commands: one that evaluates, one that compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baseline", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--checkpoint", default="latest")
    parser.add_argument("--samples", default="0")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args(arguments)
    trained = options.run / "evaluations" / f"against_{options.baseline.name}"
    evaluate = [str(options.run), "--checkpoint", options.checkpoint, "--samples", options.samples]
    return [
        ["evaluate", *evaluate, "--out", str(trained), *options.overrides],
        ["compare", str(options.baseline), str(trained)],
    ]


if __name__ == "__main__":
    sys.exit(next((code for step in steps_of() if (code := main(step))), 0))

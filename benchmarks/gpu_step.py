"""Time GRPO steps on one GPU with colocated vLLM, SmolLM2-135M or any model folder, and write JSON.

usage: python benchmarks/gpu_step.py [--tasks 64] [--rollouts 8] [--tokens 256] [--steps 4] --output FILE
       MODEL_FOLDER [OVERRIDES ...]

The story family repeats its seven subjects, so a step has as many groups as asked.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from bars import add_work, card, parse, versions
from story_run import PARTS, layout, measure, work_overrides


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_work(parser)
    parser.add_argument("--steps", type=int, default=4, help="measured steps")
    parser.add_argument("--output", type=Path, required=True)
    options, given = parse(parser)
    overrides = [*layout(num_gpus=1), *work_overrides(options), *given]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = measure("gpu", options.steps, Path(folder), overrides)
    print(", ".join(f"{part} {found[part]:.2f} s" for part in PARTS))
    report = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": card(),
        "versions": versions(),
        "work": f"{options.tasks} tasks x {options.rollouts} rollouts x {options.tokens} tokens",
        "overrides": overrides,
        "with_start_and_end_s": time.perf_counter() - started,
        "results": found,
    }
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

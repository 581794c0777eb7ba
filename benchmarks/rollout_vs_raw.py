"""Time rollouts through the whole product against one raw `vllm.LLM` on the same card in the same call (bar P1).

usage: python benchmarks/rollout_vs_raw.py MODEL_FOLDER --output FILE [--engines 1 2 3] [--tasks 64] [--rollouts 8]
       [--tokens 256] [--steps 4] [OVERRIDES ...]

The product's time is all of a step but training and push: environments, rewards, metrics and the step's record are
included, no part is taken out. Answers end where the model ends them, so tokens per second are compared.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from bars import add_work, attempt, parse, work_arguments, write_result
from story_run import HERE, layout, measure, work_overrides

TARGET_ONE, TARGET_SEVERAL = 0.95, 1.5


def raw(options: argparse.Namespace) -> dict[str, Any]:
    """Run the peer in a process of its own."""
    command = [sys.executable, str(HERE / "raw_rollout.py"), *work_arguments(options), "--repeats", str(options.steps)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(next(line for line in reversed(printed.splitlines()) if line.startswith('{"start_s"')))
    # The first repeat warms up, as the product's first step does.
    found["tokens_per_s"] = statistics.median(row["tokens_per_s"] for row in found["repeats"][1:])
    return found


def ours(options: argparse.Namespace, num_engines: int, overrides: list[str]) -> dict[str, Any]:
    """Run the product with a number of engines on the card."""
    chosen = [
        *layout(num_gpus=1),
        f"engine.gpu_memory_fraction={0.5 / num_engines:.2f}",
        f"cluster.num_engines_per_gpu={num_engines}",
        f"cluster.num_engines={num_engines}",
        *work_overrides(options),
        *overrides,
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = measure("rollouts", options.steps, Path(folder), chosen)
    seconds = found["rollout"] + found["reward"]
    tokens = found["completion_tokens"] * options.tasks * options.rollouts
    return {"tokens_per_s": tokens / seconds, "seconds": seconds, "run": found, "overrides": chosen}


def write(path: Path, peer: dict[str, Any], by_engines: dict[int, dict[str, Any]]) -> None:
    """Write what is known so far."""
    one = by_engines.get(1, {}).get("ratio", 0.0)
    several = max((row.get("ratio", 0.0) for number, row in by_engines.items() if number > 1), default=0.0)
    is_met = one >= TARGET_ONE and several >= TARGET_SEVERAL
    unit = f"tokens/s of raw vLLM's; with one engine {one:.3f} (target {TARGET_ONE})"
    write_result(path, "P1", several or one, unit, TARGET_SEVERAL, is_met=is_met, raw={"raw": peer, "ours": by_engines})


def main() -> int:
    """Measure and write one JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_work(parser)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=4)
    options, overrides = parse(parser)
    peer = raw(options)
    print(f"raw: {peer['tokens_per_s']:.0f} tokens/s", flush=True)
    by_engines: dict[int, dict[str, Any]] = {}
    for number in options.engines:
        by_engines[number] = attempt(f"{number} engines", partial(ours, options, number, overrides))
        if "error" not in by_engines[number]:
            by_engines[number]["ratio"] = by_engines[number]["tokens_per_s"] / peer["tokens_per_s"]
        write(options.output, peer, by_engines)  # after each, so that a time limit loses one only
    return 0


if __name__ == "__main__":
    sys.exit(main())

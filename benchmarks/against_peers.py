"""Rollouts against one raw `vllm.LLM` (bar P1) and whole GRPO steps against TRL (bar P2), in turn on one card.

usage: python benchmarks/against_peers.py MODEL_FOLDER --output FILE [--engines 1 3] [--tasks 64] [--rollouts 8]
       [--tokens 256] [--steps 4] [--peers raw trl] [--micro-batch 32] [--checkpointing] [OVERRIDES ...]

One run of the product per number of engines counts for both bars. P1: its time is all of a step but training and push;
environments, rewards, metrics and the step's record are included. Answers end where the model ends them, so tokens per
second are compared. P2: rollout, reward, training and push, with the engines that did best. The first step of
all is left out. Two files are written, `-P1` and `-P2` before the suffix of FILE, again after each part.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bars import add_work, attempt, parse, work_arguments, write_result
from story_run import HERE, layout, measure, work_overrides

TARGET_ONE, TARGET_SEVERAL = 0.95, 1.5
TARGET_STEP = 0.5
MEMORY = 0.24
"""Share of the card that all engines get; they keep it while the policy trains."""


def peer(script: str, key: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Run a peer in a process of its own and return the JSON line that has a key."""
    command = [sys.executable, str(HERE / script), *arguments]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(next(line for line in reversed(printed.splitlines()) if line.startswith(f'{{"{key}"')))


def raw(options: argparse.Namespace) -> dict[str, Any]:
    """Generate with raw vLLM."""
    found = peer("raw_rollout.py", "start_s", [*work_arguments(options), "--repeats", str(options.steps)])
    # The first repeat warms up, as the product's first step does.
    found["tokens_per_s"] = statistics.median(row["tokens_per_s"] for row in found["repeats"][1:])
    return found


def trl(options: argparse.Namespace) -> dict[str, Any]:
    """Take steps with TRL and vLLM on the same card."""
    more = ["--steps", str(options.steps), "--micro-batch", str(options.micro_batch)]
    more += ["--checkpointing"] if options.checkpointing else []
    found = peer("trl_gpu_step.py", "step_s", [*work_arguments(options), *more])
    found["step"] = statistics.median(found["step_s"][1:])
    return found


def ours(options: argparse.Namespace, num_engines: int, overrides: list[str]) -> dict[str, Any]:
    """Run the product with a number of engines on the card."""
    chosen = [
        *layout(num_gpus=1),
        f"engine.gpu_memory_fraction={MEMORY / num_engines:.2f}",
        f"cluster.num_engines_per_gpu={num_engines}",
        f"cluster.num_engines={num_engines}",
        *work_overrides(options),
        *overrides,
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = measure("gpu", options.steps, Path(folder), chosen)
    seconds = found["rollout"] + found["reward"]
    tokens = found["completion_tokens"] * options.tasks * options.rollouts
    return {"tokens_per_s": tokens / seconds, "seconds": seconds, "run": found, "overrides": chosen}


def write(path: Path, peers: dict[str, dict[str, Any]], by_engines: dict[int, dict[str, Any]]) -> None:
    """Write what is known so far.

    Args:
        path: The form of both names.
        peers: What `raw` and `trl` found.
        by_engines: What `ours` found, by number of engines; a `ratio` to raw vLLM is put into each.
    """
    runs = {number: row for number, row in by_engines.items() if "error" not in row}
    if tokens_per_s := peers.get("raw", {}).get("tokens_per_s"):
        for row in runs.values():
            row["ratio"] = row["tokens_per_s"] / tokens_per_s
        one = runs.get(1, {}).get("ratio")
        several = max((row["ratio"] for number, row in runs.items() if number > 1), default=None)
        unit = "tokens/s of raw vLLM's, several engines; with one engine "
        unit += f"{one:.3f} (target {TARGET_ONE})" if one else "not measured"
        is_met = (one or 0) >= TARGET_ONE and (several or 0) >= TARGET_SEVERAL
        found = {"raw": peers["raw"], "ours": by_engines}
        write_result(_named(path, "P1"), "P1", several, unit, TARGET_SEVERAL, is_met=is_met, raw=found)
    if "trl" in peers:
        best = min(runs.values(), key=lambda row: row["run"]["step"], default={"run": {}, "overrides": []})
        seconds = peers["trl"].get("step")
        ratio = best["run"]["step"] / seconds if runs and seconds else None
        found = {"ours": best["run"], "trl": peers["trl"], "overrides": best["overrides"]}
        is_met = ratio is not None and ratio <= TARGET_STEP
        write_result(_named(path, "P2"), "P2", ratio, "our step / TRL's step", TARGET_STEP, is_met=is_met, raw=found)


def _named(path: Path, bar: str) -> Path:
    return path.with_name(f"{path.stem}-{bar}{path.suffix}")


def main() -> int:
    """Measure and write both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_work(parser)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--peers", nargs="+", choices=("raw", "trl"), default=["raw", "trl"])
    parser.add_argument("--micro-batch", type=int, default=32, help="TRL's, in sequences")
    parser.add_argument("--checkpointing", action="store_true", help="TRL's gradient checkpointing")
    options, overrides = parse(parser)
    peers: dict[str, dict[str, Any]] = {}
    by_engines: dict[int, dict[str, Any]] = {}
    if "raw" in options.peers:
        peers["raw"] = attempt("raw vLLM", partial(raw, options))
    for number in options.engines:
        by_engines[number] = attempt(f"{number} engines", partial(ours, options, number, overrides))
        write(options.output, peers, by_engines)  # after each, so that a time limit loses one only
    if "trl" in options.peers:
        peers["trl"] = attempt("TRL", partial(trl, options))
        write(options.output, peers, by_engines)
    return 0


if __name__ == "__main__":
    sys.exit(main())

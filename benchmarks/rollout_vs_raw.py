"""Time rollouts through the whole product against one raw `vllm.LLM` on the same card in the same call (bar P1).

usage: python benchmarks/rollout_vs_raw.py MODEL_FOLDER --output FILE [--engines 1 2 3] [--tasks 64] [--rollouts 8]
       [--tokens 256] [--steps 4] [--small] [OVERRIDES ...]

The product's time is from asking for a batch of groups to having the last one, environments and rewards included: no
part is taken out. Answers end where the model ends them, so tokens per second are compared.
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

from bars import attempt, write_result
from story_run import measure

TARGET_ONE, TARGET_SEVERAL = 0.95, 1.5
HERE = Path(__file__).resolve().parent


def raw(options: argparse.Namespace) -> dict[str, Any]:
    """Run the peer in a process of its own."""
    command = [sys.executable, str(HERE / "raw_rollout.py"), options.model, "--repeats", str(options.steps)]
    for name in ("tasks", "rollouts", "tokens"):
        command += [f"--{name}", str(getattr(options, name))]
    command += ["--small"] if options.small else []
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(next(line for line in reversed(printed.splitlines()) if line.startswith('{"start_s"')))
    # The first repeat warms up, as the product's first step does.
    found["tokens_per_s"] = statistics.median(row["tokens_per_s"] for row in found["repeats"][1:])
    return found


def ours(options: argparse.Namespace, num_engines: int, overrides: list[str]) -> dict[str, Any]:
    """Run the product with a number of engines on the card."""
    device = ["engine=vllm", "cluster=cpu"]
    if not options.small:
        device = ["engine=vllm_gpu", "cluster=h100x1", "weight_sync=ipc", "model.compute_dtype=bfloat16"]
        device += [f"engine.gpu_memory_fraction={0.5 / num_engines:.2f}"]
        device += [f"cluster.num_engines_per_gpu={num_engines}", f"cluster.num_engines={num_engines}"]
    chosen = [
        *device,
        f"model.path={options.model}",
        f"trainer.tasks_per_step={options.tasks}",
        f"trainer.rollouts_per_task={options.rollouts}",
        "trainer.micro_batch_tokens=32768",
        f"rollout.max_new_tokens={options.tokens}",
        f"rollout.max_total_tokens={options.tokens + 256}",
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
    write_result(
        path, "P1", max(one, several), unit, TARGET_SEVERAL, is_met=is_met, raw={"raw": peer, "ours": by_engines}
    )


def main() -> int:
    """Measure and write one JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--small", action="store_true", help="on a CPU, to try the script")
    options, overrides = parser.parse_known_args()
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

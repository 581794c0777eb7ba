"""Time one GRPO step on the CPU with both engines, next to TRL's GRPOTrainer on the same work in the same run.

4 tasks x 4 rollouts x at most 64 new tokens, SmolLM2-135M-Instruct, fp32, one update; a first step is thrown away.

usage: python benchmarks/cpu_step.py [--steps 3] [--only hf vllm trl] [--output benchmarks/results/cpu_step.json]

TRL is installed by `pip install --no-deps -r benchmarks/requirements.txt`.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from story_run import PARTS, measure

HERE = Path(__file__).resolve().parent
ENGINES = {"hf": ("engine=hf", "weight_sync=host"), "vllm": ("engine=vllm", "weight_sync=gloo")}
OURS = (
    "trainer.tasks_per_step=4",
    "trainer.rollouts_per_task=4",
    "trainer.micro_batch_tokens=1024",
    "model.logprob_chunk_tokens=128",
    "rollout.max_new_tokens=64",
    "rollout.max_total_tokens=512",
)


def measure_trl(steps: int) -> dict[str, Any]:
    """Run TRL in a process of its own."""
    from skyrl_nat.checkpoint.pretrained import resolve_model

    model = resolve_model("smollm2-135m-instruct")
    command = [sys.executable, str(HERE / "trl_step.py"), str(model), str(steps + 1)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=HERE)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    step_s, generation_s, reward_s = (found[name][1:] for name in ("step_s", "generation_s", "reward_s"))
    return {
        "rollout": statistics.median(generation_s) - statistics.median(reward_s),
        "reward": statistics.median(reward_s),
        "train": statistics.median(step_s) - statistics.median(generation_s),
        "step": statistics.median(step_s),
        "completion_tokens": statistics.mean(found["completion_tokens"][1:]),
        "steps_s": step_s,
    }


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3, help="measured steps of each")
    parser.add_argument("--only", nargs="+", choices=["hf", "vllm", "trl"], default=["hf", "vllm", "trl"])
    parser.add_argument("--output", type=Path, default=HERE / "results" / "cpu_step.json")
    options = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            results[name] = (
                measure_trl(options.steps)
                if name == "trl"
                else measure(name, options.steps, Path(folder), [*ENGINES[name], *OURS])
            )
    ratios = {}
    if "trl" in results:
        ratios = {name: results["trl"]["step"] / found["step"] for name, found in results.items() if name != "trl"}
    for name, found in results.items():
        shown = ", ".join(f"{part} {found[part]:.1f} s" for part in PARTS if part in found)
        print(f"{name}: {shown}; {found['completion_tokens']:.0f} tokens a completion")
    for name, ratio in ratios.items():
        print(f"{name} is {ratio:.2f} times as fast as TRL")
    report = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "work": "4 tasks x 4 rollouts x 64 new tokens, SmolLM2-135M, fp32, median of the steps after the first",
        "results": results,
        "times_as_fast_as_trl": ratios,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

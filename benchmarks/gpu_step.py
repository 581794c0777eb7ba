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

import torch
from story_run import PARTS, measure


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4, help="measured steps")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    overrides = [
        "engine=vllm_gpu",
        "cluster=h100x1",
        "weight_sync=gloo",
        f"model.path={options.model}",
        "model.compute_dtype=bfloat16",
        f"trainer.tasks_per_step={options.tasks}",
        f"trainer.rollouts_per_task={options.rollouts}",
        "trainer.micro_batch_tokens=16384",
        f"rollout.max_new_tokens={options.tokens}",
        f"rollout.max_total_tokens={options.tokens + 256}",
        *options.overrides,
    ]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = measure("gpu", options.steps, Path(folder), overrides)
    print(", ".join(f"{part} {found[part]:.2f} s" for part in PARTS))
    report = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}",
        "versions": {"torch": torch.__version__},
        "work": f"{options.tasks} tasks x {options.rollouts} rollouts x {options.tokens} tokens",
        "overrides": overrides,
        "with_start_and_end_s": time.perf_counter() - started,
        "results": found,
    }
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

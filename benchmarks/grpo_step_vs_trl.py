"""Time whole GRPO steps on one GPU, ours and TRL's with colocated vLLM, one after the other (bar P2).

usage: python benchmarks/grpo_step_vs_trl.py MODEL_FOLDER --output FILE [--tasks 64] [--rollouts 8] [--tokens 256]
       [--steps 4] [--micro-batch 32] [--checkpointing] [OVERRIDES ...]

Rollout, reward, training and weight push count. The first step of both is left out.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bars import write_result
from story_run import PARTS, measure

TARGET = 0.5
HERE = Path(__file__).resolve().parent


def main() -> int:
    """Measure both and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--micro-batch", type=int, default=32, help="TRL's, in sequences")
    parser.add_argument("--checkpointing", action="store_true", help="TRL's gradient checkpointing")
    options, overrides = parser.parse_known_args()
    chosen = [
        "engine=vllm_gpu",
        "cluster=h100x1",
        "weight_sync=ipc",
        f"model.path={options.model}",
        "model.compute_dtype=bfloat16",
        f"trainer.tasks_per_step={options.tasks}",
        f"trainer.rollouts_per_task={options.rollouts}",
        "trainer.micro_batch_tokens=32768",
        f"rollout.max_new_tokens={options.tokens}",
        f"rollout.max_total_tokens={options.tokens + 256}",
        *overrides,
    ]
    with tempfile.TemporaryDirectory() as folder:
        ours = measure("gpu", options.steps, Path(folder), chosen)
    print("ours: " + ", ".join(f"{part} {ours[part]:.2f} s" for part in PARTS), flush=True)
    command = [sys.executable, str(HERE / "trl_gpu_step.py"), options.model]
    for name in ("tasks", "rollouts", "tokens", "steps", "micro_batch"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    command += ["--checkpointing"] if options.checkpointing else []
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    peer = json.loads(printed.strip().splitlines()[-1])
    seconds = statistics.median(peer["step_s"][1:])
    ratio = ours["step"] / seconds
    print(f"TRL: step {seconds:.2f} s; ratio {ratio:.3f}")
    raw = {"ours": ours, "trl": peer, "overrides": chosen}
    write_result(options.output, "P2", ratio, "our step / TRL's step", TARGET, is_met=ratio <= TARGET, raw=raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())

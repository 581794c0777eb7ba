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

from bars import add_work, parse, work_arguments, write_result
from story_run import HERE, PARTS, layout, measure, work_overrides

TARGET = 0.5


def main() -> int:
    """Measure both and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_work(parser)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--micro-batch", type=int, default=32, help="TRL's, in sequences")
    parser.add_argument("--checkpointing", action="store_true", help="TRL's gradient checkpointing")
    options, overrides = parse(parser)
    chosen = [*layout(num_gpus=1), *work_overrides(options), *overrides]
    with tempfile.TemporaryDirectory() as folder:
        ours = measure("gpu", options.steps, Path(folder), chosen)
    print("ours: " + ", ".join(f"{part} {ours[part]:.2f} s" for part in PARTS), flush=True)
    raw = {"ours": ours, "overrides": chosen}
    unit = "our step / TRL's step"
    write_result(options.output, "P2", None, unit, TARGET, is_met=False, raw=raw)  # a time limit may end the peer's
    command = [sys.executable, str(HERE / "trl_gpu_step.py"), *work_arguments(options)]
    command += ["--steps", str(options.steps), "--micro-batch", str(options.micro_batch)]
    command += ["--checkpointing"] if options.checkpointing else []
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    peer = json.loads(printed.strip().splitlines()[-1])
    seconds = statistics.median(peer["step_s"][1:])
    ratio = ours["step"] / seconds
    print(f"TRL: step {seconds:.2f} s; ratio {ratio:.3f}")
    raw["trl"] = peer
    write_result(options.output, "P2", ratio, unit, TARGET, is_met=ratio <= TARGET, raw=raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())

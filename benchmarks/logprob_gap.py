"""How far the engine's log-probs are from the trainer's on the same tokens, with frozen weights in bf16 (bar P6).

usage: python benchmarks/logprob_gap.py MODEL_FOLDER --output FILE [--tasks 64] [--rollouts 8] [--tokens 256]
       [--trl] [--limit-s 200] [OVERRIDES ...]

One batch is played and scored again by the policy; nothing is trained. Measured in plain bf16 and with
`model.fp32_head` and `model.fp32_residual`, each alone and both; the value is the mean with both. `--trl` measures
TRL's on one step of the same work in the same call; `loss/rollout_logprob_diff` of a run's metrics is the same mean.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from bars import add_work, attempt, parse, work_arguments, write_result
from open_story import in_open_run
from story_run import HERE, layout, story_overrides, work_overrides

from skyrl_nat.batching.packing import pack
from skyrl_nat.controller.run import Run
from skyrl_nat.controller.update import call_per_row, samples_of

TARGET = 0.02
TRL_MEASURED = 0.033
"""TRL 1.16's mean on this work, measured before on an H100."""
FORMS = {
    "head_and_residual": ("model.fp32_head=true", "model.fp32_residual=true"),
    "head": ("model.fp32_head=true",),
    "bf16": (),
    "residual": ("model.fp32_residual=true",),
}
"""What is kept in fp32; the bar's first."""
QUANTILES = (0.5, 0.9, 0.99, 0.999)


async def compare(run: Run) -> dict[str, Any]:
    """Play one batch and return how its log-probs differ."""
    await run.push_weights()
    run.producer.start_at(0)
    async with run.rollout_phase():
        groups = await run.producer.take()
    print(f"{len(groups)} groups played", flush=True)
    samples = samples_of(groups, run.config)
    grid = pack(
        samples,
        [1.0] * len(samples),
        num_ranks=run.config.data_parallel_size,
        token_budget=run.config.trainer.micro_batch_tokens,
    )
    async with run.training_phase():
        computed = await call_per_row(run.policy, "compute_logprobs", [(row,) for row in grid])
    signed = torch.cat(
        [
            (logprobs - batch.rollout_logprobs)[batch.loss_mask].double()
            for row, columns in zip(grid, computed, strict=True)
            for batch, logprobs in zip(row, columns, strict=True)
        ]
    )
    difference = signed.abs().sort().values
    places = {q: min(int(q * len(difference)), len(difference) - 1) for q in QUANTILES}
    return {
        "rollouts": len(samples),
        "tokens": len(difference),
        "mean": float(difference.mean()),
        "max": float(difference[-1]),
        "quantiles": {str(q): float(difference[place]) for q, place in places.items()},
        "signed_mean": float(signed.mean()),
        "share_of_exactly_equal": float((difference == 0).double().mean()),
    }


def ours(name: str, folder: Path, options: argparse.Namespace, overrides: list[str]) -> dict[str, Any]:
    """Compare in one of the forms."""
    chosen = [
        *layout(num_gpus=1),
        *work_overrides(options),
        "optimizer.lr=0",
        *FORMS[name],
        *overrides,
        *story_overrides(name, folder, 1, options.tasks),
    ]
    return {**in_open_run(chosen, compare, options.limit_s), "overrides": chosen}


def trl(options: argparse.Namespace) -> dict[str, Any]:
    """Return TRL's own figures on one step of the same work."""
    command = [sys.executable, str(HERE / "trl_gpu_step.py"), *work_arguments(options), "--steps", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit_s, check=False)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-1500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> int:
    """Measure and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_work(parser)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--trl", action="store_true", help="measure TRL too; needs benchmarks/requirements.txt")
    parser.add_argument("--limit-s", type=float, default=200, help="of each part, its start included")
    options, overrides = parse(parser)
    raw: dict[str, Any] = {"trl_measured_before": TRL_MEASURED}
    with tempfile.TemporaryDirectory() as folder:
        for name in FORMS:
            raw[name] = attempt(name, lambda name=name: ours(name, Path(folder), options, overrides))
    if options.trl:
        raw["trl"] = attempt("trl", lambda: trl(options))
    value = raw["head_and_residual"].get("mean")
    is_met = value is not None and value < TARGET
    unit = "nats, the mean |difference| with head and residual stream in fp32"
    write_result(options.output, "P6", value, unit, TARGET, is_met=is_met, raw=raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())

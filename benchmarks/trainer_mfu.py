"""Time the trainer alone on one GPU: forward, backward and optimizer step on packed sequences (bar P3).

usage: python benchmarks/trainer_mfu.py MODEL_FOLDER --output FILE [--length 2048] [--tokens 16384 32768 65536]
       [--steps 5] [OVERRIDES ...]

Every token of a sequence but the first is in the loss. The first step of each size compiles and is not counted.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from bars import parse, write_result

from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.batching.packing import build_micro_batch
from skyrl_nat.config.load import load_config
from skyrl_nat.monitoring.cards import CARDS, find_card
from skyrl_nat.monitoring.flops import ModelShape, mfu
from skyrl_nat.types import TrainingSample
from skyrl_nat.workers.objective import StepConstants
from skyrl_nat.workers.policy import PolicyWorker

TARGET = 0.45


def make_batch(num_tokens: int, length: int, vocabulary: int) -> MicroBatch:
    """Return random sequences that share no beginning."""
    generator = torch.Generator().manual_seed(num_tokens)
    samples = [
        TrainingSample(
            sample_id=str(number),
            rollout_id=str(number),
            group_id=str(number),
            token_ids=torch.randint(10, min(vocabulary, 40_000), (length,), generator=generator).tolist(),
            loss_mask=[False] + [True] * (length - 1),
            rollout_logprobs=[-10.0] * length,
            advantages=[0.0] + [1.0] * (length - 1),
            oldest_version=0,
        )
        for number in range(num_tokens // length)
    ]
    return build_micro_batch(samples, [1.0] * len(samples))


def measure(
    worker: PolicyWorker, shape: ModelShape, options: argparse.Namespace, num_tokens: int, peak: float
) -> dict[str, Any]:
    """Return medians of one size."""
    vocabulary = worker.module.causal_lm.config.vocab_size
    batch = make_batch(num_tokens, options.length, vocabulary)
    constants = StepConstants(denominator=float(batch.num_loss_tokens), kl_coefficient=0.0, entropy_coefficient=0.0)
    torch.cuda.reset_peak_memory_stats()
    times: list[float] = []
    metrics: dict[str, float] = {}
    for _ in range(options.steps + 2):
        torch.cuda.synchronize()
        started = time.perf_counter()
        metrics = worker.train([batch], constants)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    seconds = statistics.median(times[2:])
    lengths = [options.length] * (num_tokens // options.length)
    return {
        "tokens": num_tokens,
        "first_step_s": times[0],
        "step_s": seconds,
        "steps_s": times,
        "tokens_per_s": num_tokens / seconds,
        "mfu": mfu(shape.training_flops(lengths), seconds, peak_flops=peak),
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        "loss": metrics["loss/total"],
    }


def main() -> int:
    """Measure all sizes and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16384, 32768, 65536])
    parser.add_argument("--steps", type=int, default=5)
    options, overrides = parse(parser)
    card = find_card([torch.cuda.get_device_name()])
    if card is None:
        sys.exit(f"trainer_mfu: the card must be one of {', '.join(CARDS)}, found {torch.cuda.get_device_name()}.")
    chosen = ["cluster=h100x1", "engine=vllm_gpu", "model.compute_dtype=bfloat16", "model.compile=true", *overrides]
    config = load_config([f"model.path={options.model}", *chosen])
    worker = PolicyWorker(
        model_path=str(options.model),
        model=config.model,
        optimizer=config.optimizer,
        algorithm=config.algorithm,
        device="cuda",
        temperature=1.0,
        total_steps=1000,
        num_threads=0,
        seed=0,
    )
    worker.init_process_group(0, 1, "127.0.0.1", 29731, 300.0)
    started = time.perf_counter()
    worker.build()
    built = time.perf_counter() - started
    shape = ModelShape.of_config(json.loads((options.model / "config.json").read_text()))
    rows: list[dict[str, Any]] = []
    for num_tokens in options.tokens:
        try:
            rows.append(measure(worker, shape, options, num_tokens, card.bf16_flops))
        except torch.cuda.OutOfMemoryError:
            rows.append({"tokens": num_tokens, "mfu": 0.0, "out_of_memory": True})
            worker.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
        print(json.dumps(rows[-1]), flush=True)
    best = max(row["mfu"] for row in rows)
    unit = "MFU (6N + attention, recomputation not counted)"
    raw = {"overrides": chosen, "build_s": built, "length": options.length, "sizes": rows}
    write_result(options.output, "P3", best, unit, TARGET, is_met=best >= TARGET, raw=raw)
    worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

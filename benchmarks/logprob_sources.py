"""Where the distance between the engine's and the trainer's log-probs comes from (beside bar P6).

usage: python benchmarks/logprob_sources.py MODEL_FOLDER --output FILE [--tasks 64] [--rollouts 8] [--tokens 256]
       [--engines bf16 bf16_fp32_head ...] [--limit-s 150]

Every engine form plays the work once with raw vLLM, in a process of its own. Every trainer form then scores the same
tokens. `fp32` of the trainer stands for the truth: a form's distance from it is that form's own rounding.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from bars import add_work, attempt, parse, work_arguments, write_result
from raw_rollout import DECODE_GRAPHS, story_prompts
from story_run import HERE

from skyrl_nat.batching.packing import pack
from skyrl_nat.config.model import Dtype, ModelConfig
from skyrl_nat.engines.vllm_arguments import set_environment
from skyrl_nat.types import TrainingSample
from skyrl_nat.workers.reference import ReferenceWorker

FP32_HEAD = {"hf_overrides": {"head_dtype": "float32"}}
ENGINES: dict[str, dict[str, Any]] = {
    "bf16": {},
    "bf16_fp32_head": FP32_HEAD,
    "bf16_fp32_head_residual": {
        **FP32_HEAD,
        "worker_extension_cls": "skyrl_nat.engines.vllm_residual.Fp32ResidualExtension",
    },
}
"""What differs from the product's default settings."""
TRAINERS: dict[str, dict[str, Any]] = {
    "fp32": {"compute_dtype": Dtype.float32},
    "bf16": {},
    "bf16_fp32_head": {"fp32_head": True},
    "bf16_fp32_head_compiled": {"fp32_head": True, "compile": True},
    "bf16_fp32_head_residual": {"fp32_head": True, "fp32_residual": True},
    "bf16_fp32_head_residual_compiled": {"fp32_head": True, "fp32_residual": True, "compile": True},
}


def play(options: argparse.Namespace, name: str) -> None:
    """Play with one engine form and write tokens and log-probs to the output."""
    is_gpu = torch.cuda.is_available()
    set_environment(is_cpu=not is_gpu, num_threads=os.cpu_count() or 1)
    from vllm import LLM, SamplingParams

    settings: dict[str, Any] = {"gpu_memory_utilization": 0.4, "compilation_config": DECODE_GRAPHS}
    if not is_gpu:
        settings = {"enforce_eager": True, "kv_cache_memory_bytes": 2**30}
    form = {"dtype": "bfloat16", "logprobs_mode": "processed_logprobs", **settings, **ENGINES[name]}
    llm = LLM(options.model, max_model_len=options.tokens + 256, max_num_seqs=512, generation_config="vllm", **form)
    sampling = SamplingParams(temperature=1.0, max_tokens=options.tokens, logprobs=0, detokenize=False, seed=1)
    outputs = llm.generate(story_prompts(options), sampling, use_tqdm=False)
    rows = []
    for output in outputs:
        completion = output.outputs[0]
        chosen = [entry[token].logprob for token, entry in zip(completion.token_ids, completion.logprobs, strict=True)]
        rows.append({"prompt": output.prompt_token_ids, "tokens": list(completion.token_ids), "logprobs": chosen})
    options.output.write_text(json.dumps(rows))


def samples_of(rows: list[dict[str, Any]]) -> list[TrainingSample]:
    """Return what was played as training samples."""
    return [
        TrainingSample(
            sample_id=str(number),
            rollout_id=str(number),
            group_id=str(number),
            token_ids=row["prompt"] + row["tokens"],
            loss_mask=[False] * len(row["prompt"]) + [True] * len(row["tokens"]),
            rollout_logprobs=[0.0] * len(row["prompt"]) + row["logprobs"],
            advantages=[0.0] * (len(row["prompt"]) + len(row["tokens"])),
            oldest_version=0,
        )
        for number, row in enumerate(rows)
    ]


def score(model: str, name: str, rows: list[dict[str, Any]]) -> torch.Tensor:
    """Return the log-probs of all sampled tokens in one trainer form, fp64 `[tokens]`."""
    is_gpu = torch.cuda.is_available()
    samples = samples_of(rows)
    (grid,) = pack(samples, [1.0] * len(samples), num_ranks=1, token_budget=16384)
    worker = ReferenceWorker(
        model_path=model,
        model=ModelConfig(**{"path": model, "compute_dtype": Dtype.bfloat16, **TRAINERS[name]}),
        device="cuda" if is_gpu else "cpu",
        temperature=1.0,
        num_threads=0,
        seed=0,
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    worker.init_process_group(0, 1, "127.0.0.1", port, 60)
    worker.build()
    found = worker.compute_logprobs(grid)
    # Micro-batches are ordered by cost: the order of tokens is the grid's in every form.
    values = torch.cat([part[batch.loss_mask].double() for batch, part in zip(grid, found, strict=True)])
    played = torch.cat([batch.rollout_logprobs[batch.loss_mask].double() for batch in grid])
    worker.close()
    return torch.stack([values, played])


def distance(one: torch.Tensor, other: torch.Tensor) -> dict[str, float]:
    """Return mean and 99 % quantile of the absolute difference."""
    difference = (one - other).abs().sort().values
    return {"mean": float(difference.mean()), "p99": float(difference[int(0.99 * len(difference))])}


def compare(options: argparse.Namespace, name: str, folder: Path) -> dict[str, Any]:
    """Play with one engine form and hold all trainer forms against it and against fp32."""
    file = folder / f"{name}.json"
    command = [sys.executable, __file__, *work_arguments(options), "--output", str(file), "--play", name]
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    subprocess.run(command, check=True, timeout=options.limit_s, env={**os.environ, "PYTHONPATH": path})
    rows = json.loads(file.read_text())
    found = {form: score(options.model, form, rows) for form in TRAINERS}
    truth = found["fp32"][0]
    return {
        "tokens": len(truth),
        "engine_to_fp32": distance(found["fp32"][1], truth),
        "trainer_to_fp32": {form: distance(pair[0], truth) for form, pair in found.items()},
        "engine_to_trainer": {form: distance(pair[1], pair[0]) for form, pair in found.items()},
    }


def main() -> int:
    """Measure and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_work(parser)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--limit-s", type=float, default=150, help="of each engine form, its start included")
    parser.add_argument("--play", choices=list(ENGINES), help=argparse.SUPPRESS)
    options, _ = parse(parser)
    if options.play:
        play(options, options.play)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        raw = {name: attempt(name, lambda name=name: compare(options, name, Path(folder))) for name in options.engines}
    means = [row["mean"] for entry in raw.values() for row in entry.get("engine_to_trainer", {}).values()]
    unit = "nats, the smallest mean |difference| of all pairs of forms"
    value = min(means, default=None)
    write_result(options.output, "P6 sources", value, unit, 0.02, is_met=value is not None and value < 0.02, raw=raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())

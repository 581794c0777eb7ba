"""Time how long an engine needs from a new process to its first answer, twice in a row (engine=vllm_gpu's defaults).

usage: python benchmarks/engine_start.py MODEL_FOLDER --output FILE [--starts 2] [--limit-s 280] [OVERRIDES ...]

The first start warms the disk and vLLM's caches, the last one is the value. Phases are the import, and what vLLM's log
says that it took.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from bars import attempt, parse, write_result

TARGET = 60.0
BEGUN = "ENGINE_START_BEGUN"
"""Environment variable of the child: when it was started, seconds since the epoch."""
TOOK = re.compile(r"((?:took|finished in|in) (?:[\d.]+ GiB (?:memory )?and )?[\d.]+ ?s(?:ec(?:ond)?s?)?\b)")


def start_here(model: str, overrides: list[str]) -> dict[str, Any]:
    """Start an engine in this process, get one answer, end it; return seconds by phase."""
    from skyrl_nat.checkpoint.pretrained import resolve_model
    from skyrl_nat.config.load import load_config
    from skyrl_nat.engines.vllm import VllmEngine
    from skyrl_nat.engines.vllm_arguments import set_environment
    from skyrl_nat.types import GenerationRequest, SamplingParams

    is_gpu = torch.cuda.is_available()
    layout = ["engine=vllm_gpu", "cluster=h100x1", "weight_sync=ipc"] if is_gpu else ["engine=vllm", "weight_sync=gloo"]
    precision = ["model.compute_dtype=bfloat16"] if is_gpu else []
    config = load_config([*layout, *precision, f"model.path={model}", *overrides])
    marks = {"python_and_torch": time.time() - float(os.environ[BEGUN])}
    engine = VllmEngine(
        str(resolve_model(model)),
        config.engine,
        max_model_len=config.rollout.max_total_tokens,
        device="cuda" if is_gpu else "cpu",
        seed=0,
        num_threads=config.cluster.num_threads or 2,
    )
    set_environment(is_cpu=not is_gpu, num_threads=engine.num_threads)
    began = time.perf_counter()
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: F401

    marks["import_vllm"] = time.perf_counter() - began

    async def start_and_ask() -> None:
        began = time.perf_counter()
        await engine.start()
        marks["start"] = time.perf_counter() - began
        marks["total"] = time.time() - float(os.environ[BEGUN])
        began = time.perf_counter()
        sampling = SamplingParams(max_new_tokens=16)
        await engine.generate(GenerationRequest(request_id="first", prompt_token_ids=[1] * 16, sampling=sampling))
        marks["first_answer"] = time.perf_counter() - began
        await engine.shutdown()

    asyncio.run(start_and_ask())
    return marks


def start(options: argparse.Namespace, overrides: list[str]) -> dict[str, Any]:
    """Start an engine in a new process and return what it took."""
    command = [sys.executable, __file__, options.model, "--output", str(options.output), "--child", *overrides]
    environment = {**os.environ, BEGUN: str(time.time()), "VLLM_LOGGING_LEVEL": "INFO"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=options.limit_s, check=False
    )
    printed = done.stdout + done.stderr
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {printed[-1500:]}")
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return {**found, "log": [line[-200:] for line in printed.splitlines() if TOOK.search(line)]}


def main() -> int:
    """Measure and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--limit-s", type=float, default=280, help="of each start")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options, overrides = parse(parser)
    if options.child:
        print(json.dumps(start_here(options.model, overrides)), flush=True)
        return 0
    starts = [attempt(f"start {number}", lambda: start(options, overrides)) for number in range(options.starts)]
    value = starts[-1].get("total")
    unit = "s from a new process to a healthy engine, warm disk"
    raw = {"overrides": overrides, "starts": starts}
    is_met = value is not None and value <= TARGET
    write_result(options.output, "engine start", value, unit, TARGET, is_met=is_met, raw=raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())

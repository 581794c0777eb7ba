"""Time pushes of all weights into running engines, end to end, and the link that they go over (bars P4 and I3).

usage: python benchmarks/weight_push.py MODEL_FOLDER --output FILE [--bar P4] [--pushes 6]
       [--variants colocated apart] [--gpus N] [--policy-gpus N] [--gpus-per-engine 1] [--limit-s 240] [OVERRIDES ...]

colocated: engines and policy share the cards, one by default (ipc), and engines sleep before every push as in a
training step. apart: policy on the first cards, engines on the others (nccl), one each by default; left out where there
is one card. A push is what the trainer calls `time/push_s`: pause, transfer, vLLM's reload, KV cache, resume. The first
one is left out. At the end checksums of all tensors are compared. The link's limit is a plain copy on one card, or a
broadcast between two, of as many bytes, 8 GiB at most. I3 is P4 at 32B on eight cards, with a target of its own.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from bars import attempt, parse, write_result
from open_story import in_open_run
from story_run import layout, story_overrides
from torch import multiprocessing

from skyrl_nat.controller.run import Run

TARGETS = {"P4": 0.5, "I3": 5.0}
VARIANTS = ("colocated", "apart")
PORT = 29741


class Stopwatch:
    """Seconds by name, of calls of the groups of actors."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def wrap(self, role: str, group: Any) -> None:
        """Time every `call_all` of a group from now on."""
        call_all = group.call_all

        async def timed(method: str, *args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return await call_all(method, *args, **kwargs)
            finally:
                self.seconds.setdefault(f"{role}.{method}", []).append(time.perf_counter() - started)

        group.call_all = timed

    def medians(self) -> dict[str, float]:
        """Return the median of each call but its first."""
        return {name: statistics.median(times[1:] or times) for name, times in self.seconds.items()}


async def push_often(run: Run, number: int) -> dict[str, Any]:
    """Push so many times and once more, and compare checksums."""
    await run.push_weights()
    manifest = (await run.policy.call_all("weight_manifest", run.config.engine.dtype))[0]
    sizes = [torch.Size(spec.shape).numel() * getattr(torch, spec.dtype).itemsize for spec in manifest]
    watch = Stopwatch()
    watch.wrap("policy", run.policy)
    watch.wrap("engines", run.engines)
    seconds = []
    for place in range(number + 1):
        async with run.training_phase():
            pass
        started = time.perf_counter()
        await run.push_weights()
        seconds.append(time.perf_counter() - started)
        print(f"push {place} in {seconds[-1]:.3f} s", flush=True)
    parts = watch.medians()
    run.config.weight_sync.verify_checksums = True
    async with run.training_phase():
        pass
    await run.push_weights()
    measured = seconds[1:]
    return {
        "median_s": statistics.median(measured),
        "min_s": min(measured),
        "pushes_s": seconds,
        "bytes": sum(sizes),
        "tensors": len(sizes),
        "gb_per_s": sum(sizes) / 1e9 / statistics.median(measured),
        "calls_s": parts,
        "checksums_equal": True,
    }


def copy_on_card(num_bytes: int) -> dict[str, Any]:
    """Return the GB/s of a plain copy within a card (or within memory): bytes copied, not read plus written."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    source = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = _best_of(lambda: target.copy_(source))
    return {"seconds": seconds, "gb_per_s": num_bytes / 1e9 / seconds}


def broadcast(rank: int, num_bytes: int, file: str) -> None:
    """Broadcast from rank 0 to rank 1 and write the best time (both ranks run this)."""
    is_gpu = torch.cuda.device_count() > 1
    device = torch.device("cuda", rank) if is_gpu else torch.device("cpu")
    if is_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if is_gpu else "gloo", init_method=f"tcp://127.0.0.1:{PORT}", rank=rank, world_size=2
    )
    tensor = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    seconds = _best_of(lambda: dist.broadcast(tensor, 0))
    if rank == 0:
        Path(file).write_text(str(seconds))
    dist.destroy_process_group()


def _best_of(function: Any) -> float:
    """Return the best seconds of several calls, the first left out."""
    times = []
    for _ in range(8):
        started = time.perf_counter()
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times[1:])


def broadcast_between_cards(num_bytes: int, folder: Path) -> dict[str, Any]:
    """Return the GB/s of a broadcast between two processes, each on a card of its own."""
    file = folder / "seconds"
    multiprocessing.spawn(broadcast, args=(num_bytes, str(file)), nprocs=2)
    seconds = float(file.read_text())
    return {"seconds": seconds, "gb_per_s": num_bytes / 1e9 / seconds}


def variant(name: str, folder: Path, options: argparse.Namespace, overrides: list[str]) -> dict[str, Any]:
    """Measure one layout and its link."""
    is_apart = name == "apart"
    common = [f"model.path={options.model}", "rollout.max_new_tokens=64", "rollout.max_total_tokens=256"]
    place = layout(
        num_gpus=options.gpus or (2 if is_apart else 1),
        is_apart=is_apart,
        num_policy_ranks=options.policy_gpus,
        gpus_per_engine=options.gpus_per_engine,
    )
    chosen = [*place, *common, *overrides]
    everything = [*chosen, *story_overrides(name, folder, 1)]
    found = in_open_run(everything, lambda run: push_often(run, options.pushes), options.limit_s)
    size = min(found["bytes"], 2**33)
    link = attempt(f"{name}, link", lambda: broadcast_between_cards(size, folder) if is_apart else copy_on_card(size))
    torch.cuda.empty_cache()
    return {
        "overrides": chosen,
        **found,
        "link": link,
        "share_of_link": found["gb_per_s"] / link["gb_per_s"] if "gb_per_s" in link else None,
    }


def verdict(found: dict[str, dict[str, Any]], target: float) -> tuple[float | None, str, bool]:
    """Return value, unit and whether the bar is met by all layouts that were measured."""
    medians = [row.get("median_s") for row in found.values()]
    value = None if None in medians else max(medians)
    unit = f"s of the slower push, measured: {', '.join(found)}"
    return value, unit, value is not None and value <= target


def main() -> int:
    """Measure both layouts and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--bar", choices=TARGETS, default="P4")
    parser.add_argument("--gpus", type=int, default=0, help="of each variant; 0: one, apart two")
    parser.add_argument("--policy-gpus", type=int, default=0, help="of them, where they are apart; 0: half")
    parser.add_argument("--gpus-per-engine", type=int, default=1)
    parser.add_argument("--pushes", type=int, default=6)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--limit-s", type=float, default=240, help="of each variant, its start included")
    options, overrides = parse(parser)
    names = [name for name in options.variants if name == "colocated" or torch.cuda.device_count() != 1]
    with tempfile.TemporaryDirectory() as folder:
        found = {
            name: attempt(name, lambda name=name: variant(name, Path(folder), options, overrides)) for name in names
        }
    target = TARGETS[options.bar]
    value, unit, is_met = verdict(found, target)
    write_result(options.output, options.bar, value, unit, target, is_met=is_met, raw=found)
    return 0


if __name__ == "__main__":
    sys.exit(main())

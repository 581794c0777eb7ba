"""Train a large model in full, engines beside the policy, and watch the cards' memory (bars P7 and I1).

usage: python benchmarks/large_model.py MODEL_FOLDER --output FILE [--bar P7] [--steps 6] [--tasks 4] [--rollouts 8]
       [--tokens 4096] [--gpus 2] [--gpus-per-engine 1] [--gpu-memory-fraction 0.4] [--limit-s 540] [OVERRIDES ...]

`random_model.py` writes the model; random weights hardly ever end a text, so that rollouts have all their tokens.
Memory is what nvidia-smi says, each half second. Before the run its own config is planned for this machine's card: GiB
of the fullest card and seconds by stage (`plan` in the result). How near each stage comes to what the cards can do is
in `account`: `train/mfu`, `rollout/bandwidth_share` and `push/link_share`. A run that does not end well is not met.

P7 (7B on two cards): how much a step's peak grows from step to step after the third, on the card where it grows most,
as a share of the peak. I1 (32B on eight): the peak of the fullest card over the planned one. `model.offload=all` and
the like go into the overrides.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bars import add_work, attempt, parse, write_result
from planned import planned, story
from story_run import account, layout, story_overrides, train, work_overrides

GROWTH = 0.01
"""Target of P7."""
WITHIN = 0.15
"""Of the planned peak, for I1."""
AFTER = 3
"""Steps whose memory still settles."""
EVERY_S = 0.5


class MemoryWatch:
    """Samples the memory in use of every card, and how many steps were trained by then."""

    def __init__(self, metrics: Path) -> None:
        self._metrics = metrics
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples: list[tuple[float, int, list[float]]] = []
        """Seconds since the start, steps trained, GiB by card."""

    def __enter__(self) -> "MemoryWatch":
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        started = time.monotonic()
        while not self._is_over.wait(EVERY_S):
            with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
                steps = self._metrics.read_text().count("\n") if self._metrics.exists() else 0
                self.samples.append((time.monotonic() - started, steps, gib_in_use()))

    def peaks(self) -> list[list[float]]:
        """Return the peak of each step by card, GiB; the first entry is that of the start and the first step."""
        steps = sorted({step for _, step, _ in self.samples})
        return [[max(column) for column in zip(*self._of(step), strict=True)] for step in steps]

    def _of(self, step: int) -> list[list[float]]:
        return [cards for _, found, cards in self.samples if found == step]


def gib_in_use() -> list[float]:
    """Return GiB in use by card; without cards those of this machine, so that the script can be tried."""
    try:
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        printed = subprocess.run(query, capture_output=True, text=True, check=True, timeout=10).stdout
        return [float(line) / 1024 for line in printed.split()]
    except FileNotFoundError:
        import psutil

        return [psutil.virtual_memory().used / 2**30]


def slope(peaks: list[list[float]]) -> float:
    """Return the growth per step of the steepest card, a share of its mean peak."""
    slopes = []
    for column in zip(*peaks, strict=True):
        fitted = statistics.linear_regression(range(len(column)), column).slope
        slopes.append(fitted / statistics.mean(column))
    return max(slopes, key=abs)


def measure(folder: Path, options: argparse.Namespace, overrides: list[str]) -> dict[str, Any]:
    """Train and return times, memory and what went wrong."""
    chosen = [
        *layout(num_gpus=options.gpus, gpus_per_engine=options.gpus_per_engine),
        f"engine.gpu_memory_fraction={options.gpu_memory_fraction}",
        "model.activation_checkpointing=true",
        *work_overrides(options, budget=16384),
        *overrides,
        *story_overrides("run", folder, options.steps),
    ]
    lengths = story(options.tokens, longest=options.tokens, spread=0.0)
    plan = attempt("plan", lambda: planned(chosen, lengths))
    with MemoryWatch(folder / "run" / "metrics.jsonl") as watch:
        run = train(folder / "run", chosen, options.limit_s)
    # What follows the last step is the end of the run.
    peaks = watch.peaks()[: len(run.steps)]
    return {
        "overrides": chosen,
        "plan": plan,
        "error": run.error,
        "alarms": run.alarms,
        "num_steps": len(run.steps),
        "steps": [{name: step[name] for name in step if name.startswith("time/")} for step in run.steps],
        "completion_tokens": [step["rollout/completion_tokens/mean"] for step in run.steps],
        "account": account(run.steps[1:] or run.steps) if run.steps else {},
        "step_peaks_gib": peaks,
        "slope": slope(peaks[AFTER:]) if len(peaks) > AFTER + 1 else None,
        "memory_gib_over_time": [
            [round(at, 1), step, *cards] for at, step, cards in watch.samples[:: max(2, len(watch.samples) // 1000)]
        ],
    }


def verdict(bar: str, raw: dict[str, Any], num_steps: int) -> tuple[float | None, str, float, bool]:
    """Return value, unit, target and whether it is met.

    Args:
        bar: P7 or I1.
        raw: From `measure`, or an error.
        num_steps: That were asked for.
    """
    if bar == "P7":
        value, unit = raw.get("slope"), "growth of a step's peak memory per step after the third, a share of it"
        return value, unit, GROWTH, value is not None and abs(value) <= GROWTH and not raw["error"]
    planned_gib = raw.get("plan", {}).get("peak_gib")
    measured = [max(cards) for cards in raw.get("step_peaks_gib", [])]
    value = max(measured) / planned_gib if measured and planned_gib else None
    has_ended_well = not raw.get("error") and raw.get("num_steps") == num_steps
    unit = f"peak memory of the fullest card / planned peak; met within {WITHIN:.0%} by a run that ends well"
    return value, unit, 1.0, value is not None and abs(value - 1) <= WITHIN and has_ended_well


def main() -> int:
    """Measure and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_work(parser)
    parser.set_defaults(tasks=4, tokens=4096)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--bar", choices=("P7", "I1"), default="P7")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--gpus-per-engine", type=int, default=1)
    parser.add_argument("--gpu-memory-fraction", type=float, default=0.4)
    parser.add_argument("--limit-s", type=float, default=540)
    options, overrides = parse(parser)
    with tempfile.TemporaryDirectory() as folder:
        raw = attempt("run", lambda: measure(Path(folder), options, overrides))
    value, unit, target, is_met = verdict(options.bar, raw, options.steps)
    write_result(options.output, options.bar, value, unit, target, is_met=is_met, raw=raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())

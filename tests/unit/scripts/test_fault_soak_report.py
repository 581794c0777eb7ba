"""The verdict of the soak: nothing may grow, but for what Ray's own servers keep of workers that were lost."""

import importlib
import os
import threading
from pathlib import Path

import pytest


def test_rays_own_servers_may_keep_a_little_of_each_fault_and_nobody_else_anything(monkeypatch: pytest.MonkeyPatch):
    """At 120 faults an hour 16 KiB of each are 1.875 MiB an hour, and a twentieth of a file 6 files."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "scripts"))
    report, growth = (importlib.import_module(name) for name in ("fault_soak_report", "growth"))

    def rising(per_hour: float, mean: float, error: float = 0.03) -> object:
        return growth.Slope(per_hour, per_hour - error, per_hour + error, mean, 20)

    slopes = {
        "gcs_server: own_mib": rising(1.8, 30),
        "raylet: own_mib": rising(1.9, 20),
        "raylet: threads": rising(1, 30),
        "raylet: files": rising(5.9, 80),
        "gcs_server: files": rising(6.1, 80),
        "controller: own_mib": rising(5, 400),
        "controller: files": rising(5.9, 50),
        "shared memory: mib": rising(0.9, 3),
        "shared memory: files": rising(0.9, 3),
        "policy 0: own_mib": rising(0.5, 20, error=1.2),
        "all processes: proportional_mib": rising(-50, 2600),
    }
    assert report.grown(slopes, faults_per_hour=120) == [
        "raylet: own_mib",
        "raylet: threads",
        "gcs_server: files",
        "controller: own_mib",
        "controller: files",
        "shared memory: files",
    ]
    assert report.grown({"shared memory: mib": rising(1.1, 3)}, faults_per_hour=120) == ["shared memory: mib"]


def test_threads_of_grpcs_pools_are_not_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "scripts"))
    family = importlib.import_module("process_family")
    before = family.held(family.family(os.getpid())[:1]).threads
    ended, named = threading.Event(), threading.Barrier(4)
    threads = [threading.Thread(target=_wait_as, args=(name, named, ended)) for name in (*family.POOLS, "ours")]
    for thread in threads:
        thread.start()
    named.wait(10)
    try:
        assert family.held(family.family(os.getpid())[:1]).threads == before + 1
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _wait_as(name: str, named: threading.Barrier, ended: threading.Event) -> None:
    """Wait in a thread that the kernel knows by a name."""
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
    named.wait(10)
    ended.wait(10)

"""The verdict of the soak: nothing may grow, but for what Ray's own servers keep of workers that were lost."""

import importlib
from pathlib import Path

import pytest


def test_rays_own_servers_may_keep_a_little_of_each_fault_and_nobody_else_anything(monkeypatch: pytest.MonkeyPatch):
    """At 120 faults an hour 16 KiB of each are 1.875 MiB an hour."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "scripts"))
    report, growth = (importlib.import_module(name) for name in ("fault_soak_report", "growth"))

    def rising(per_hour: float, mean: float, standard_error: float = 0.01) -> object:
        return growth.Slope(per_hour, standard_error, mean, 20)

    slopes = {
        "gcs_server: own_mib": rising(1.8, 30),
        "raylet: own_mib": rising(1.9, 20),
        "raylet: threads": rising(1, 30),
        "controller: own_mib": rising(5, 400),
        "policy 0: own_mib": rising(0.5, 20, standard_error=0.4),
        "all processes: proportional_mib": rising(-50, 2600),
    }
    assert report.grown(slopes, faults_per_hour=120) == ["raylet: own_mib", "raylet: threads", "controller: own_mib"]

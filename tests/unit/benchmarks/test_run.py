"""The runner of all bars: what it calls, and that one that fails does not stop the others."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from skyrl_nat.cluster.placement import NodeResources, plan_placement
from skyrl_nat.config.load import load_config
from skyrl_nat.planning.model_shape import find_decoder
from skyrl_nat.planning.plan import Setting, estimate
from skyrl_nat.planning.rates import machine_of
from skyrl_nat.planning.refusals import check
from skyrl_nat.planning.workload import guess_workload

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))
EIGHT_CARDS = {"i1": 1, "i2": 4, "i3": 1, "i3-apart": 1, "i4": 7, "i5": 1}
"""Bars of one node of eight cards, and the runs of each."""
NODE = NodeResources(name="node", num_cpus=128, num_gpus=8)
BARS = [
    "p1-p2",
    "p1-p2-1.5b",
    "p3",
    "p4",
    "p5",
    "p6",
    "p7",
    "p8",
    "sources",
    "engine-start",
    "presets",
    *EIGHT_CARDS,
]
PYTHON = """#!/bin/bash
script=$1
[ -f "$script" ] || exit 9
if [ "${script##*/}" = random_model.py ]; then exit; fi
echo "$@"
[ "${script##*/}" != trainer_mfu.py ]
"""


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it with a python3 that prints what it is called with, and fails for one bar."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir(exist_ok=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    return subprocess.run(
        ["bash", str(ROOT / "benchmarks" / "run.sh"), *arguments],
        env={**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_bar_is_called_and_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    done = run(tmp_path, str(tmp_path / "out"), "/models/small", *BARS)
    assert done.returncode == 1
    assert done.stderr.strip() == f"p3 failed, see {tmp_path}/out/p3.log"
    calls = {bar: (tmp_path / "out" / f"{bar}.log").read_text().split() for bar in BARS}
    assert all(call[-2:] == ["--output", f"{tmp_path}/out/{bar}.json"] for bar, call in calls.items())
    assert calls["p1-p2-1.5b"][1] == f"{tmp_path}/out/models/qwen2.5-1.5b"
    assert "engine.sleep=false" in calls["p1-p2-1.5b"]
    assert 'rollout.stop=["z"]' in calls["p8"]
    assert calls["p6"][1] == "/models/small"


@pytest.fixture
def caught(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Have eight H100 by name, and the overrides of runs that are not started."""
    found: list[list[str]] = []

    def start(*arguments: object, **_: object) -> None:
        found.append(next(each for each in arguments if isinstance(each, list)))
        raise RuntimeError("not started")

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    monkeypatch.setenv("LOGNORMAL_MEAN", "")
    for name in ("story_run", "large_model", "weight_push", "async_vs_sync", "validators_wait"):
        module = importlib.import_module(name)
        for call in {"train", "in_open_run"} & vars(module).keys():
            monkeypatch.setattr(module, call, start)
    monkeypatch.setattr("validators_wait.Watch.count_all", lambda self: None)
    return found


@pytest.mark.parametrize("bar", EIGHT_CARDS)
def test_runs_on_eight_cards_find_places_and_memory(
    tmp_path: Path, caught: list[list[str]], monkeypatch: pytest.MonkeyPatch, bar: str
) -> None:
    assert run(tmp_path, str(tmp_path), "/models/smollm2-135m", bar).returncode == 0
    call = (tmp_path / f"{bar}.log").read_text().split()
    monkeypatch.setattr(sys, "argv", call)
    assert importlib.import_module(Path(call[0]).stem).main() == 0
    assert len(caught) == EIGHT_CARDS[bar]
    for overrides in caught:
        config = load_config(overrides)
        plan_placement(config.cluster, [NODE], is_overlapped=config.trainer.staleness > 0)
        decoder, machine = find_decoder(config.model.path), machine_of("h100")
        longest = config.rollout.max_turns * config.rollout.max_new_tokens
        work = guess_workload(config, mean_tokens=longest, spread=0.0)
        found = estimate(config, Setting(decoder=decoder, machine=machine, workload=work, num_steps=1))
        check(config, decoder, machine, num_micro_batches=found.num_micro_batches)


def test_what_is_no_bar_and_a_call_without_one_are_refused(tmp_path: Path) -> None:
    wrong = run(tmp_path, str(tmp_path), "/models/small", "p99")
    assert (wrong.returncode, "there is no bar p99" in wrong.stderr) == (1, True)
    bare = run(tmp_path, str(tmp_path))
    assert (bare.returncode, "usage:" in bare.stderr) == (2, True)

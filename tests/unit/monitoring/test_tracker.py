"""Metrics reach every back end; a broken one never stops a run."""

import io
import json

from rich.console import Console

from skyrl_nat.config.outputs import TrackingConfig
from skyrl_nat.monitoring.console import ConsoleBackend
from skyrl_nat.monitoring.tracker import Tracker


def console() -> tuple[ConsoleBackend, io.StringIO]:
    text = io.StringIO()
    return ConsoleBackend(Console(file=text, width=200, highlight=False)), text


def test_jsonl_console_tensorboard_and_wandb_get_the_same_step(tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    shown, text = console()
    backends = ["jsonl", "console", "tensorboard", "wandb"]
    tracker = Tracker(TrackingConfig(backends=backends, wandb_mode="offline"), tmp_path, {"seed": 1}, shown)
    tracker.log(1, {"loss/policy": 0.25, "rollout/reward/mean": 0.5})
    tracker.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {
        "step": 1,
        "loss/policy": 0.25,
        "rollout/reward/mean": 0.5,
    }
    assert "step 1: reward 0.500, loss +0.2500" in text.getvalue()
    events = [event for path in (tmp_path / "tensorboard").iterdir() for event in EventFileLoader(str(path)).Load()]
    values = {value.tag: (event.step, value.tensor.float_val[0]) for event in events for value in event.summary.value}
    assert values == {"loss/policy": (1, 0.25), "rollout/reward/mean": (1, 0.5)}
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb")), "an offline run that `wandb sync` can send"


def test_failing_back_end_is_switched_off_and_the_others_go_on(tmp_path):
    shown, _ = console()

    class Broken:
        calls = 0

        def log(self, step, metrics):
            self.calls += 1
            raise OSError("disk full")

        def close(self):
            raise OSError("disk full")

    tracker = Tracker(TrackingConfig(backends=["jsonl"]), tmp_path, {}, shown)
    broken = tracker._backends["broken"] = Broken()
    tracker.log(1, {"a": 1.0})
    tracker.log(2, {"a": 2.0})
    tracker.close()
    assert broken.calls == 1
    assert [json.loads(line)["a"] for line in (tmp_path / "metrics.jsonl").open()] == [1.0, 2.0]


def test_nan_becomes_null_in_json(tmp_path):
    shown, _ = console()
    tracker = Tracker(TrackingConfig(backends=["jsonl"]), tmp_path, {}, shown)
    tracker.log(1, {"a": float("nan"), "b": float("inf")})
    tracker.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "a": None, "b": None}

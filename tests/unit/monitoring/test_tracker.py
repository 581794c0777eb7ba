"""Metrics reach every back end; a broken one never stops a run, and none of them loses a step without a word."""

import gc
import io
import time
import tracemalloc
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import torch
import wandb
from rich.console import Console
from small_disk import small_disk

from skyrl_nat.config.outputs import TrackingConfig
from skyrl_nat.errors import TrackingError
from skyrl_nat.monitoring.console import ConsoleBackend
from skyrl_nat.monitoring.tracker import Tracker
from skyrl_nat.strict_json import parse_json


def console() -> tuple[ConsoleBackend, io.StringIO]:
    text = io.StringIO()
    return ConsoleBackend(Console(file=text, width=400, highlight=False)), text


def open_tracker(folder: Path, *backends: str, mode: str = "offline") -> tuple[Tracker, io.StringIO]:
    shown, text = console()
    return Tracker(TrackingConfig(backends=["jsonl", *backends], wandb_mode=mode), folder, {"seed": 1}, shown), text


def lines(folder: Path) -> list[dict]:
    return [parse_json(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def scalars(folder: Path) -> list[tuple[int, str, float]]:
    """Return what TensorBoard shows, after all that it forgets."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return [(event.step, tag, event.value) for tag in events.Tags()["scalars"] for event in events.Scalars(tag)]


class DroppingRun:
    """A WandB run that treats steps as the real one does: a lower one than before is dropped."""

    def __init__(self, kept: list, **how):
        self.kept, self.how, self.name, self.axis, self.dropped = kept, how, how["name"], None, 0
        self.dir = str(Path(how["dir"]) / "wandb" / "offline-run-1" / "files")
        self._step = 0

    def define_metric(self, name, step_metric):
        self.axis = (name, step_metric)

    def log(self, metrics, step=None):
        if step is not None and step < self._step:
            self.dropped += 1
            return
        self._step = self._step + 1 if step is None else step
        self.kept.append((self.name, metrics))

    def status(self):
        pass

    def finish(self):
        pass


def fake_wandb(monkeypatch) -> tuple[list[DroppingRun], list]:
    runs, kept = [], []

    def init(**how):
        runs.append(DroppingRun(kept, **how))
        return runs[-1]

    monkeypatch.setattr(wandb, "init", init)
    return runs, kept


def test_jsonl_console_tensorboard_and_wandb_get_the_same_step(tmp_path):
    tracker, text = open_tracker(tmp_path, "console", "tensorboard", "wandb")
    tracker.log(1, {"loss/policy": 0.25, "rollout/reward/mean": 0.5})
    tracker.close()
    assert lines(tmp_path) == [{"step": 1, "loss/policy": 0.25, "rollout/reward/mean": 0.5}]
    assert "step 1: reward 0.500, loss +0.2500" in text.getvalue()
    assert sorted(scalars(tmp_path)) == [(1, "loss/policy", 0.25), (1, "rollout/reward/mean", 0.5)]
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb")), "an offline run that `wandb sync` can send"


class Broken:
    """A back end that fails whatever is asked of it."""

    calls = 0

    def rewind(self, step):
        self.log(step, {})

    def log(self, step, metrics):
        self.calls += 1
        raise OSError("disk full")

    def close(self):
        raise OSError("disk full")


@pytest.mark.parametrize("first", ["log", "rewind"])
def test_failing_back_end_is_switched_off_with_one_warning_and_the_others_go_on(tmp_path, first: str):
    """LG-02: a full disk is such a failure for every back end but the record."""
    tracker, text = open_tracker(tmp_path)
    broken = tracker._backends["broken"] = Broken()
    if first == "rewind":
        tracker.rewind(0)
    tracker.log(1, {"a": 1.0})
    tracker.log(2, {"a": 2.0})
    tracker.close()
    assert broken.calls == 1
    assert text.getvalue().splitlines() == [
        "Tracking back end broken failed and is switched off: OSError('disk full'). All metrics are in metrics.jsonl"
    ]
    assert [line["a"] for line in lines(tmp_path)] == [1.0, 2.0]


def test_a_full_disk_of_tensorboard_is_one_warning_and_no_traceback(tmp_path, capfd):
    """LG-02: every step has some 27 KiB, the disk of `tensorboard/` 1 MiB."""
    (tmp_path / "tensorboard").mkdir()
    with small_disk(tmp_path / "tensorboard", 1):
        tracker, text = open_tracker(tmp_path, "tensorboard")
        for step in range(44):
            tracker.log(step, {f"a{number}": 1 for number in range(2000)})
        tracker.close()
        kept = {step for step, _, _ in scalars(tmp_path)}
    [warning] = text.getvalue().splitlines()
    assert "tensorboard failed and is switched off" in warning
    assert "All metrics are in metrics.jsonl" in warning
    assert 0 < len(kept) < 44
    assert kept == set(range(len(kept))), "all until it was full"
    assert [line["step"] for line in lines(tmp_path)] == list(range(44))
    assert "Traceback" not in capfd.readouterr().err


def test_a_full_disk_of_wandb_is_one_warning_that_says_how_to_send_what_is_kept(tmp_path, monkeypatch):
    """LG-02: at step 5."""
    _, kept = fake_wandb(monkeypatch)
    (tmp_path / "wandb" / "offline-run-1").mkdir(parents=True)
    tracker, text = open_tracker(tmp_path, "wandb", mode="online")
    free = 2**30
    monkeypatch.setattr(
        "skyrl_nat.monitoring.wandb_backend.shutil.disk_usage", lambda folder: SimpleNamespace(free=free)
    )
    for step in range(1, 8):
        free = 2**30 if step < 5 else 4096
        tracker.log(step, {"a": float(step)})
    tracker.close()
    assert [metrics["step"] for _, metrics in kept] == [1, 2, 3, 4]
    [warning] = text.getvalue().splitlines()
    for words in ("No space left on device", f"`wandb sync {tmp_path}/wandb/offline-run-1`", "metrics.jsonl"):
        assert words in warning
    assert [line["step"] for line in lines(tmp_path)] == list(range(1, 8))


def test_the_record_that_cannot_be_written_is_an_error_with_a_name(tmp_path, monkeypatch):
    """LG-02: the disk of the run folder is full."""
    tracker, _ = open_tracker(tmp_path)
    tracker.log(1, {"a": 1.0})

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("skyrl_nat.monitoring.tracker.append_lines", full)
        patch.setattr("skyrl_nat.monitoring.tracker.replace_lines", full)
        with pytest.raises(TrackingError, match=r"metrics.jsonl must take every step, but: .*No space left.*resume="):
            tracker.log(2, {"a": 2.0})
        with pytest.raises(TrackingError, match="No space left"):
            tracker.rewind(1)
    assert lines(tmp_path) == [{"step": 1, "a": 1.0}], "what was there stays"


def test_values_that_are_not_finite_are_null_with_a_reason_in_the_record(tmp_path):
    """LG-05: a strict parser reads every line. Nothing else serves metrics: there is no status endpoint to ask."""
    tracker, text = open_tracker(tmp_path, "tensorboard", "wandb")
    tracker.log(1, {"a": float("nan"), "b": float("inf"), "c": -float("inf"), "d": 1.0})
    tracker.close()
    reasons = {"a": "nan", "b": "inf", "c": "-inf"}
    assert lines(tmp_path) == [{"step": 1, "a": None, "b": None, "c": None, "d": 1.0, "not_finite": reasons}]
    assert text.getvalue() == ""


def test_scalars_of_numpy_and_torch_are_written_as_plain_numbers(tmp_path):
    """LG-07."""
    tracker, text = open_tracker(tmp_path, "tensorboard", "wandb")
    values = {
        "float32": numpy.float32(0.5),
        "tensor": torch.tensor(2.0, requires_grad=True) * 2,
        "one": numpy.array([3.0]),
        "bfloat16": torch.tensor([1.5], dtype=torch.bfloat16),
        "int64": numpy.int64(2**53 + 1),
        "bool": True,
        "numpy_bool": numpy.bool_(False),
    }
    tracker.log(1, values)
    tracker.close()
    found = lines(tmp_path)[0]
    assert found == {
        "step": 1,
        "float32": 0.5,
        "tensor": 4.0,
        "one": 3.0,
        "bfloat16": 1.5,
        "int64": 2**53 + 1,
        "bool": 1,
        "numpy_bool": 0,
    }
    assert not any(isinstance(value, bool) for value in found.values())
    assert text.getvalue() == ""


@pytest.mark.parametrize("value", [numpy.ones(2), torch.ones(2, 2), [1.0], "1.0", None, {"x": 1}])
def test_what_is_not_one_number_is_refused_with_its_key(tmp_path, value):
    """LG-07."""
    tracker, _ = open_tracker(tmp_path)
    with pytest.raises(TrackingError, match="loss/odd must be one number, got"):
        tracker.log(1, {"loss/policy": 1.0, "loss/odd": value})
    assert lines(tmp_path) == []


def test_no_tensor_and_no_graph_outlives_the_step_that_logged_it(tmp_path):
    """LG-07: a thousand steps take no more memory than a hundred."""
    tracker, _ = open_tracker(tmp_path)
    weight = torch.ones(1000, requires_grad=True)
    alive: weakref.WeakSet = weakref.WeakSet()

    def log(steps: range) -> int:
        for step in steps:
            loss = (weight * step).sum()
            alive.add(loss)
            tracker.log(step, {"loss/policy": loss})
        del loss
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = log(range(100))
        after = log(range(100, 1000))
    finally:
        tracemalloc.stop()
    assert not alive
    assert after - before < 20_000
    assert len(lines(tmp_path)) == 1000


def test_a_resume_at_an_earlier_step_keeps_one_curve_in_every_back_end(tmp_path, monkeypatch):
    """LG-01: steps up to 50, then again from 40; WandB has a run of its own for what came after 40."""
    runs, kept = fake_wandb(monkeypatch)
    for first, last, value in ((1, 50, 1.0), (41, 60, 2.0)):
        tracker, text = open_tracker(tmp_path, "tensorboard", "wandb")
        tracker.rewind(first - 1)
        for step in range(first, last + 1):
            tracker.log(step, {"loss/policy": value})
        tracker.close()
        assert text.getvalue() == ""
    expected = [(step, 1.0 if step <= 40 else 2.0) for step in range(1, 61)]
    assert [(line["step"], line["loss/policy"]) for line in lines(tmp_path)] == expected
    assert [(step, value) for step, _, value in scalars(tmp_path)] == expected
    first, second = tmp_path.name, f"{tmp_path.name} after step 40"
    assert [(name, metrics["step"]) for name, metrics in kept] == [
        *((first, step) for step in range(1, 51)),
        *((second, step) for step in range(41, 61)),
    ]
    assert [(run.axis, run.dropped, run.how["group"]) for run in runs] == [(("*", "step"), 0, tmp_path.name)] * 2


def test_an_evaluation_beside_a_training_step_and_one_of_an_earlier_step_drop_nothing(tmp_path, monkeypatch):
    """LG-08."""
    runs, kept = fake_wandb(monkeypatch)
    tracker, text = open_tracker(tmp_path, "tensorboard", "wandb")
    logged = [(10, "loss/policy"), (10, "eval/success"), (11, "loss/policy"), (5, "eval/success"), (12, "loss/policy")]
    for number, (step, name) in enumerate(logged):
        tracker.log(step, {name: float(number)})
    tracker.close()
    assert [(metrics["step"], list(metrics)[1]) for _, metrics in kept] == logged
    assert runs[0].dropped == 0
    assert [(line["step"], list(line)[1]) for line in lines(tmp_path)] == logged
    assert sorted(scalars(tmp_path)) == sorted((step, name, float(n)) for n, (step, name) in enumerate(logged))
    assert text.getvalue() == ""


@pytest.mark.parametrize("tail", [b'{"step": 2, "a"', b"\xff\xfe", b""])
def test_a_torn_last_line_of_the_record_gives_way(tmp_path, tail: bytes):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1, "a": 1.0}\n{"step": 3, "a": 3.0}\n' + tail)
    tracker, _ = open_tracker(tmp_path)
    tracker.rewind(1)
    tracker.log(2, {"a": 2.0})
    tracker.close()
    assert [line["step"] for line in lines(tmp_path)] == [1, 2]


def test_a_large_record_is_never_in_memory_as_a_whole(tmp_path):
    """A policy that is restarted again and again must not cost what the run has written so far."""
    tracker, _ = open_tracker(tmp_path)
    line = b'{"step": 1, "text": "' + b"x" * 1000 + b'"}\n'
    (tmp_path / "metrics.jsonl").write_bytes(line * 20_000)
    tracemalloc.start()
    tracker.rewind(1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert (tmp_path / "metrics.jsonl").stat().st_size == len(line) * 20_000


def test_lines_of_the_record_that_cannot_be_read_are_left_out_with_a_word(tmp_path, caplog):
    (tmp_path / "metrics.jsonl").write_bytes(b'\xff\n{"step": 1, "a": 1.0}\nnull\n')
    tracker, _ = open_tracker(tmp_path)
    tracker.rewind(1)
    assert len(lines(tmp_path)) == 1
    assert "2 of 3 lines are no metrics" in caplog.text


def test_wandb_that_falls_silent_is_left_for_an_offline_run(tmp_path, monkeypatch):
    """LG-02: the service falls silent at step 5; all steps since the start are in an offline run."""
    runs, kept = fake_wandb(monkeypatch)
    monkeypatch.setattr("skyrl_nat.monitoring.wandb_backend.CALL_S", 0.2)
    monkeypatch.setattr(wandb, "teardown", lambda: None)
    tracker, text = open_tracker(tmp_path, "wandb", mode="online")
    tracker.rewind(2)
    for step in range(3, 8):
        if step == 5:
            runs[0].log = lambda metrics: time.sleep(30)
        tracker.log(step, {"a": float(step)})
    tracker.close()
    assert [run.how["mode"] for run in runs] == ["online", "offline"]
    assert [metrics["step"] for _, metrics in kept] == [3, 4, *range(3, 8)], (
        "3 and 4 in the first run, all in the second"
    )
    assert {name for name, _ in kept} == {f"{tmp_path.name} after step 2"}
    [warning] = text.getvalue().splitlines()
    assert warning == (
        "WandB cannot be reached (no answer within 0.2 s), training goes on without it. Its records are kept; "
        f"send them later with `wandb sync {tmp_path}/wandb/offline-run-1`"
    )


def test_a_wandb_run_that_does_not_end_in_time_says_how_to_send_the_rest(tmp_path, monkeypatch):
    """LG-02: no network at the end of a run."""
    runs, _ = fake_wandb(monkeypatch)
    tracker, text = open_tracker(tmp_path, "wandb", mode="online")

    def finish():
        raise TimeoutError("Timed out")

    runs[0].finish = finish
    tracker.close()
    assert "WandB did not take everything (Timed out). Its records are kept; send them later" in text.getvalue()
    assert "switched off" not in text.getvalue()


@pytest.mark.parametrize(("mode", "seconds"), [("online", 10), ("offline", 60), ("disabled", 60)])
def test_a_start_that_nothing_can_stand_in_for_may_take_a_minute(tmp_path, monkeypatch, mode, seconds):
    """On a busy machine WandB's own service is slow to come; a run without it would have lost its back end."""
    runs, _ = fake_wandb(monkeypatch)
    open_tracker(tmp_path, "wandb", mode=mode)
    assert runs[0].how["settings"].init_timeout == seconds

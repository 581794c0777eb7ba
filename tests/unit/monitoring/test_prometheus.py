"""Metrics reach Prometheus in its own format, also where something is in the way; a run never notices."""

import asyncio
import io
import json
import math
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from skyrl_nat.config.outputs import TrackingConfig
from skyrl_nat.errors import ConfigError
from skyrl_nat.monitoring import prometheus, spans
from skyrl_nat.monitoring.console import ConsoleBackend
from skyrl_nat.monitoring.live import LiveState
from skyrl_nat.monitoring.tracker import Tracker

Page = dict[tuple[str, frozenset[tuple[str, str]]], float]
STATE = LiveState(
    step=3,
    total_steps=10,
    phase="train",
    silent_s=12.5,
    silence_limit_s=300.0,
    pushed_version=2,
    workers={"reward": 2, "engine": 1},
    alive_workers={"reward": 1, "engine": 1},
    longest_wait_s={"reward": 4.0, "engine": 0.0},
    requests={0: 7},
    playing_rollouts=8,
    scoring_rollouts=1,
    playing_groups=2,
    ready_groups=1,
    quarantined_tasks=0,
    engine_restarts=5,
)


OPEN: list[Tracker] = []


@pytest.fixture(autouse=True)
def _no_one_observes_the_next_test():
    yield
    while OPEN:
        OPEN.pop().close()
    assert not spans._measuring.observers


def open_tracker(folder: Path, **settings: Any) -> tuple[Tracker, io.StringIO]:
    said = io.StringIO()
    shown = ConsoleBackend(Console(file=said, width=400))
    OPEN.append(Tracker(TrackingConfig(backends=["prometheus"], **settings), folder, {}, shown))
    return OPEN[-1], said


def target_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.prometheus.json")


def address(folder: Path) -> str:
    [target] = json.loads(target_file(folder).read_text())
    assert target["labels"] == {"run": folder.name}
    return f"http://{target['targets'][0]}/metrics"


def parsed(text: str) -> Page:
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    found = {(one.name, frozenset(one.labels.items())): one.value for one in samples}
    assert len(found) == len(samples), "a series is there twice"
    return found


def page(folder: Path) -> Page:
    with urllib.request.urlopen(address(folder), timeout=5) as answer:
        return parsed(answer.read().decode())


def value(found: Page, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def test_a_line_of_metrics_is_scraped_until_the_next_one_and_what_is_not_known_any_more_is_absent(tmp_path) -> None:
    tracker, _ = open_tracker(tmp_path)
    try:
        tracker.log(
            1, {"loss/policy": 0.5, "reward/parts/mean": 1.0, "weights/pushed_mib": 2.0, "gpu/1/idle/share": 0.3}
        )
        tracker.log(1, {"time/checkpoint_s": 7.0})
        tracker.log(1, {"eval/rollout/reward/mean": 0.25})
        tracker.log(2, {"loss/policy": 0.75, "weights/pushed_mib": 1.0})
        found = page(tmp_path)
    finally:
        tracker.close()
    assert value(found, "skyrl_nat_loss_policy") == 0.75
    assert value(found, "skyrl_nat_weights_pushed_bytes") == 2**20
    assert value(found, "skyrl_nat_reward_parts_mean") is None
    assert value(found, "skyrl_nat_one_gpu_idle_share", gpu="1") is None
    assert value(found, "skyrl_nat_time_checkpoint_seconds") == 7.0
    assert value(found, "skyrl_nat_eval_rollout_reward_mean") == 0.25


def test_what_is_not_finite_is_shown_as_it_is_and_counted(tmp_path) -> None:
    """LG-05."""
    tracker, _ = open_tracker(tmp_path)
    try:
        tracker.log(1, {"loss/policy": math.nan, "loss/grad_norm": math.inf, "loss/total": 1.0})
        found = page(tmp_path)
        tracker.rewind(0)
        later = page(tmp_path)
    finally:
        tracker.close()
    assert math.isnan(value(found, "skyrl_nat_loss_policy") or 0.0)
    assert value(found, "skyrl_nat_loss_grad_norm") == math.inf
    assert value(found, "skyrl_nat_metrics_not_finite") == 2
    assert value(later, "skyrl_nat_loss_policy") is None
    assert value(later, "skyrl_nat_metrics_not_finite") == 0


def test_names_that_become_one_in_prometheus_leave_a_page_that_it_reads(tmp_path) -> None:
    tracker, _ = open_tracker(tmp_path)
    try:
        tracker.log(1, {"environment/a-b/mean": 1.0, "environment/a b/mean": 2.0})
        assert value(page(tmp_path), "skyrl_nat_environment_a_b_mean") == 2.0  # the first one in order
    finally:
        tracker.close()


def test_the_state_of_a_run_is_asked_for_with_every_scrape(tmp_path) -> None:
    tracker, _ = open_tracker(tmp_path)
    asked = []
    tracker.watch(lambda: asked.append(1) or STATE)
    try:
        page(tmp_path)
        found = page(tmp_path)
    finally:
        tracker.close()
    assert len(asked) == 2
    assert value(found, "skyrl_nat_progress_silent_seconds") == 12.5
    assert value(found, "skyrl_nat_workers", role="reward") == 2
    assert value(found, "skyrl_nat_workers_alive", role="reward") == 1
    assert value(found, "skyrl_nat_phase", phase="train") == 1
    assert value(found, "skyrl_nat_phase", phase="push") == 0
    assert value(found, "skyrl_nat_engine_requests", engine="0") == 7
    assert value(found, "skyrl_nat_engine_restarts_total") == 5
    assert value(found, "skyrl_nat_disk_free_bytes") > 0  # type: ignore[operator]
    assert value(found, "skyrl_nat_memory_available_bytes") > 0  # type: ignore[operator]


def test_latencies_and_outcomes_of_rollouts_are_counted_while_a_step_is_under_way(tmp_path) -> None:
    tracker, _ = open_tracker(tmp_path)
    try:
        for is_success in (True, False, False):
            with spans.span("rollout", kind="train", rollout="train-0-1") as known:
                with spans.span("generate"):
                    pass
                known |= {"outcome": "finished", "is_success": is_success}
        with pytest.raises(ValueError, match="gone"), spans.span("generate"):
            raise ValueError("gone")
        with pytest.raises(asyncio.CancelledError), spans.span("generate"):
            raise asyncio.CancelledError
        with spans.span("score") as known:
            known["is_verdict"] = False
        found = page(tmp_path)
    finally:
        tracker.close()
    assert value(found, "skyrl_nat_rollouts_total", kind="train", outcome="finished") == 3
    assert value(found, "skyrl_nat_judged_total", kind="train") == 3
    assert value(found, "skyrl_nat_successes_total", kind="train") == 1
    assert value(found, "skyrl_nat_generate_seconds_count") == 4
    assert value(found, "skyrl_nat_call_failures_total", call="generate") == 1
    assert value(found, "skyrl_nat_call_failures_total", call="score") == 1
    assert not [key for key in found if "train-0-1" in str(key)], "a rollout's name is no label"


def test_a_port_in_use_is_one_warning_and_no_stop(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        tracker, said = open_tracker(tmp_path, prometheus_port=taken.getsockname()[1])
    tracker.log(1, {"loss/policy": 0.5})
    tracker.log(2, {"loss/policy": 0.5})
    tracker.close()
    assert said.getvalue().count("Tracking back end prometheus failed") == 1
    assert not target_file(tmp_path).exists()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_metrics_without_end_switch_the_back_end_off_with_one_warning(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(prometheus, "MAX_METRICS", 10)
    tracker, said = open_tracker(tmp_path)
    for step in range(3):
        tracker.log(step, {f"environment/{step}-{number}/mean": 1.0 for number in range(8)})
    tracker.close()
    assert said.getvalue().count("at most 10 metrics") == 1


def test_after_the_end_nothing_listens_and_no_target_is_left(tmp_path) -> None:
    tracker, _ = open_tracker(tmp_path)
    url = address(tmp_path)
    tracker.close()
    assert not target_file(tmp_path).exists()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)
    with spans.span("generate") as known:
        known["a"] = 1
    with spans.span("generate") as known:
        assert known == {}, "nobody observes any more"


def test_an_evaluation_of_a_run_that_is_scraped_leaves_its_target_alone(tmp_path) -> None:
    training, _ = open_tracker(tmp_path)
    url = address(tmp_path)
    evaluation, said = open_tracker(tmp_path)
    evaluation.close()
    assert address(tmp_path) == url
    assert said.getvalue().count("still answers") == 1
    training.close()


@pytest.mark.parametrize("left", ['[{"targets": ["127.0.0.1:1"], "labels": {}}]', "[]", "{", ""])
def test_what_a_killed_run_has_left_is_replaced(tmp_path, left: str) -> None:
    target_file(tmp_path).write_text(left)
    tracker, said = open_tracker(tmp_path)
    assert value(page(tmp_path), "skyrl_nat_metrics_not_finite") == 0
    tracker.close()
    assert said.getvalue() == ""


def test_only_the_loopback_address_is_listened_on(tmp_path) -> None:
    tracker, _ = open_tracker(tmp_path)
    try:
        assert address(tmp_path).startswith("http://127.0.0.1:")
        backend = tracker._backends["prometheus"]
        assert backend._opened._server.server_address[0] == "127.0.0.1"  # type: ignore[attr-defined]
    finally:
        tracker.close()


def test_a_text_file_bears_the_name_of_the_run_and_is_written_between_steps_too(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(prometheus, "TEXTFILE_S", 0.05)
    file = tmp_path / "out.prom"
    tracker, _ = open_tracker(tmp_path, prometheus_textfile=str(file))
    tracker.log(1, {"loss/policy": 0.5})
    tracker.watch(lambda: STATE)
    for _ in range(200):
        found = parsed(file.read_text())
        if value(found, "skyrl_nat_progress_silent_seconds", run=tmp_path.name) == 12.5:
            break
        asyncio.run(asyncio.sleep(0.05))
    tracker.close()
    assert value(found, "skyrl_nat_progress_silent_seconds", run=tmp_path.name) == 12.5
    assert value(found, "skyrl_nat_loss_policy", run=tmp_path.name) == 0.5
    assert not file.exists()


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ({"prometheus_port": 70000}, "prometheus_port"),
        ({"prometheus_port": -1}, "prometheus_port"),
        ({"prometheus_textfile": "metrics.txt"}, "prometheus_textfile"),
        ({"trace_share": 0.0}, "trace_share"),
        ({"trace_share": 1.5}, "trace_share"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(setting: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=f"tracking.{name} must"):
        TrackingConfig(**setting)

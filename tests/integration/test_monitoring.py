"""A real Prometheus scrapes a real run: panels have data, alerts fire, and one rollout is a trace over processes."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import small_run
import yaml
from otlp_receiver import Received, receiver
from prometheus_server import Prometheus, programs, running, wait_until

from skyrl_nat.monitoring.deployment_metrics import DeploymentMetrics
from skyrl_nat.monitoring.set_up import ASSETS, write_assets

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SETTINGS = (
    "name=watched",
    *small_run.LONG,
    "evaluation.before_and_after=true",
    "evaluation.num_tasks=2",
    "evaluation.every_steps=5",
    "algorithm.kl_coefficient=0.01",
    "tracking.backends=[jsonl,prometheus]",
    "tracking.traces=otlp",
    "recovery.stall_timeout_s=40",
    "recovery.probe_timeout_s=15",
)
GPUS_ONLY = ("skyrl_nat_train_mfu", "skyrl_nat_step_mfu")
START_S, WAIT_S = 600.0, 200.0
"""Limits, of which a machine with nothing else to do needs a tenth."""


@pytest.fixture(scope="module")
def binaries(tmp_path_factory) -> Path:
    return programs(tmp_path_factory.mktemp("programs"))


def queries() -> dict[str, list[str]]:
    """Return the queries of all panels, by dashboard and title."""
    found = {}
    for file in sorted((ASSETS / "grafana" / "dashboards").glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            found[f"{file.stem}: {panel['title']}"] = [target["expr"] for target in panel["targets"]]
    return found


def as_asked(query: str) -> str:
    """Return a query as Grafana sends it, with everything chosen."""
    for name, value in (("$__rate_interval", "20s"), ("$run", ".*"), ("$instance", ".*")):
        query = query.replace(name, value)
    return query


class Deployment:
    """A deployment's metrics on a port, with a little of everything."""

    def __init__(self) -> None:
        self.metrics = metrics = DeploymentMetrics()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body, kind = metrics.page()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):  # asked too late
                    self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        with metrics.request() as note:
            metrics.phase("plan", 0.5)
            note.outcome = "trained"
        metrics.fallback("fallback_timeout")
        metrics.verdict(True)


def hasten(folder: Path) -> None:
    """Let Prometheus look every second, and let alerts wait no longer than that."""
    config = yaml.safe_load((folder / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["file_sd_configs"][0]["refresh_interval"] = "1s"
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    rules = yaml.safe_load((folder / "alerts.yml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule |= {"for": "1s"} if "for" in rule else {}
    (folder / "alerts.yml").write_text(yaml.safe_dump(rules))


class Watched:
    """A run, the Prometheus that scrapes it, and the spans that came."""

    def __init__(self, folder: Path, process: small_run.Running, server: Prometheus, spans: list[Received]) -> None:
        self.folder, self.process, self.server, self.spans = folder, process, server, spans


@pytest.fixture(scope="module")
def watched(binaries: Path, tmp_path_factory) -> Iterator[Watched]:
    folder, deployment = tmp_path_factory.mktemp("watched"), Deployment()
    runs = folder / "runs"
    runs.mkdir()
    write_assets(folder / "monitoring", [runs], [f"127.0.0.1:{deployment.server.server_port}"])
    hasten(folder / "monitoring")
    with receiver() as (address, spans), running(binaries, folder / "monitoring") as server:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
            process = small_run.start(folder, *SETTINGS)
        try:
            small_run.wait_for_step(folder, "watched", 3, process, timeout_s=START_S)
            yield Watched(folder, process, server, spans)
        finally:
            process.kill()
            process.wait(30)
            deployment.server.shutdown()


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not_and_promtool_agrees(
    binaries: Path, tmp_path: Path
) -> None:
    write_assets(tmp_path, [tmp_path], [])
    rules = yaml.safe_load((tmp_path / "alerts.yml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    tests = yaml.safe_load((tmp_path / "alerts_test.yml").read_text())["tests"]
    cases = [(one["alertname"], bool(one["exp_alerts"])) for test in tests for one in test["alert_rule_test"]]
    assert {name for name, fires in cases if fires} == {name for name, fires in cases if not fires} == alerts
    for arguments in (("test", "rules", "alerts_test.yml"), ("check", "config", "prometheus.yml")):
        found = subprocess.run([binaries / "promtool", *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert found.returncode == 0, found.stdout + found.stderr


def test_every_query_of_every_panel_has_data(watched: Watched) -> None:
    wanted = {
        (title, query)
        for title, asked in queries().items()
        for query in asked
        if not query.startswith(tuple(f"{name}{{" for name in GPUS_ONLY))
    }
    missing = set(wanted)

    def all_answered() -> bool:
        missing.difference_update({one for one in missing if watched.server.query(as_asked(one[1]))})
        return not missing

    try:
        wait_until(all_answered, WAIT_S, "every panel has data")
    except AssertionError:
        pytest.fail(f"no data: {sorted(missing)}")
    assert len(wanted) > 80


def test_what_prometheus_has_scraped_is_what_the_record_says(watched: Watched) -> None:
    entry = small_run.metrics(watched.folder, "watched")[-1]
    at = f'skyrl_nat_step{{run="watched"}} >= {entry["step"]}'
    wait_until(lambda: bool(watched.server.query(at)), WAIT_S, f"step {entry['step']} is scraped")
    [found] = watched.server.query('skyrl_nat_planned_steps{run="watched"}')
    assert float(found["value"][1]) == 1_000_000
    rewards = [entry["rollout/reward/mean"] for entry in small_run.metrics(watched.folder, "watched")]
    series = watched.server.query('skyrl_nat_rollout_reward_mean{run="watched"}[5m]')[0]["values"]
    assert {float(value) for _, value in series} <= set(rewards) | {
        entry["rollout/reward/mean"] for entry in small_run.metrics(watched.folder, "watched")
    }


def test_promtool_finds_nothing_to_say_about_the_names_on_the_page(binaries: Path, watched: Watched) -> None:
    [target] = json.loads((watched.folder / "runs" / "watched.prometheus.json").read_text())
    with urllib.request.urlopen(f"http://{target['targets'][0]}/metrics", timeout=60) as answer:
        page = answer.read()
    found = subprocess.run([binaries / "promtool", "check", "metrics"], input=page, capture_output=True)
    assert (found.returncode, found.stdout + found.stderr) == (0, b"")


def test_one_rollout_is_one_trace_with_spans_of_several_processes_whose_parents_are_right(watched: Watched) -> None:
    def whole() -> list[Received]:
        """Return the spans of a rollout of training all of whose processes have sent theirs."""
        spans = list(watched.spans)
        for root in [one for one in spans if one.name == "rollout" and one.attributes["kind"] == "train"]:
            own = [one for one in spans if one.trace == root.trace]
            if len({one.pid for one in own}) >= 4 and {one.parent for one in own} <= {"", *(one.span for one in own)}:
                return own
        return []

    wait_until(lambda: bool(whole()), WAIT_S, "a whole trace has come")
    spans = whole()
    by_id = {one.span: one for one in spans}
    paths = {
        (one.role, one.name): (by_id[one.parent].role, by_id[one.parent].name) for one in spans if one.parent in by_id
    }
    [root] = [one for one in spans if not one.parent]
    assert (root.name, root.role) == ("rollout", "controller")
    assert root.attributes["outcome"] in ("finished", "truncated")
    assert 0 <= root.attributes["reward"] <= 1
    assert paths["controller", "turn"] == ("controller", "rollout")
    assert paths["controller", "generate"] == ("controller", "turn")
    assert paths["HfEngine", "generate"] == ("controller", "generate")
    assert paths["EnvironmentWorker", "step"] == ("controller", "environment")
    assert paths["controller", "score"] == ("controller", "rollout")
    assert paths["make_reward_worker", "score"] == ("controller", "score")
    assert all(one.end >= one.start for one in spans)
    assert all(by_id[one.parent].pid != one.pid for one in spans if one.role != "controller")


def test_a_worker_that_stands_still_lets_the_alerts_fire(watched: Watched) -> None:
    assert not watched.server.firing() & {"RunNoProgress", "ValidatorsDead"}
    seen: set[str] = set()

    def has_fired() -> bool:
        seen.update(watched.server.firing())
        return {"RunNoProgress", "ValidatorsDead"} <= seen

    os.kill(small_run.pid_of(watched.folder, "watched", "reward"), signal.SIGSTOP)
    wait_until(has_fired, WAIT_S, f"both alerts fire, {seen} do")


def test_a_run_that_is_killed_is_told_of_and_one_that_ended_is_no_target(watched: Watched) -> None:
    watched.process.kill()
    wait_until(lambda: "RunGone" in watched.server.firing(), WAIT_S, "the killed run is told of")
    (watched.folder / "runs" / "watched.prometheus.json").unlink(missing_ok=True)
    wait_until(lambda: "RunGone" not in watched.server.firing(), WAIT_S, "the run is no target any more")

"""docs/monitoring.md names every metric and alert there is, and none that is not."""

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from skyrl_nat.monitoring.deployment_metrics import DeploymentMetrics
from skyrl_nat.monitoring.latencies import Latencies
from skyrl_nat.monitoring.live import LiveState, live_metrics, machine_metrics
from skyrl_nat.monitoring.prometheus import StepMetrics
from skyrl_nat.monitoring.set_up import ASSETS

PAGE = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text()
STATE = LiveState(
    step=1,
    total_steps=1,
    phase="train",
    silent_s=0.0,
    silence_limit_s=1.0,
    pushed_version=0,
    workers={"reward": 1},
    alive_workers={"reward": 1},
    longest_wait_s={"reward": 0.0},
    requests={0: 1},
    playing_rollouts=0,
    scoring_rollouts=0,
    playing_groups=0,
    ready_groups=0,
    quarantined_tasks=0,
    engine_restarts=0,
)


def named(family: Metric) -> str:
    return family.name + ("_total" if family.type == "counter" else "")


def rows(heading: str) -> set[str]:
    """Return the names in the first column of the table under a heading."""
    table = PAGE.split(heading, 1)[1].split("|---|", 1)[1].split("\n\n", 1)[0]
    cells = [line.split("|")[1] for line in table.splitlines()[1:]]
    return {re.sub(r"\{.*\}", "", name) for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def live() -> set[str]:
    families = [*live_metrics(STATE), *machine_metrics(Path("/")), *StepMetrics().collect()]
    return {named(family) for family in families} | {"skyrl_nat_controller_process_*"}


def of_rollouts() -> set[str]:
    registry = CollectorRegistry()
    Latencies(registry)
    return {named(family) for family in registry.collect()}


def of_deployments() -> set[str]:
    families = DeploymentMetrics().registry.collect()
    return {re.sub("deploy_process_.*", "deploy_process_*", named(family)) for family in families}


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("**Of this moment**", live()),
        ("**Of rollouts as they end**", of_rollouts()),
        ("**Of a deployment**", of_deployments()),
    ],
)
def test_the_tables_have_exactly_the_metrics_of_the_code(heading: str, names: set[str]) -> None:
    assert rows(heading) == names


def test_the_table_of_alerts_has_exactly_those_of_the_rules() -> None:
    groups = yaml.safe_load((ASSETS / "alerts.yml").read_text())["groups"]
    assert rows("## Alerts") == {rule["alert"] for group in groups for rule in group["rules"]}

"""What is written for Prometheus and Grafana names the targets that were asked for, and nothing that is not there."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from skyrl_nat import cli
from skyrl_nat.errors import ConfigError
from skyrl_nat.monitoring.set_up import ASSETS, write_assets

DASHBOARDS = sorted((ASSETS / "grafana" / "dashboards").glob("*.json"))


def builder() -> Any:
    """Return the script that writes the dashboards."""
    path = Path(__file__).parents[3] / "scripts" / "build_dashboards.py"
    spec = importlib.util.spec_from_file_location("build_dashboards", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_runs_and_deployments_are_filled_in_and_the_two_commands_are_said(tmp_path, capsys) -> None:
    run = tmp_path / "other" / "one run"
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    folder = tmp_path / "a b"
    arguments = ["monitoring", str(folder), "--runs", str(tmp_path / "runs"), "--runs", str(run)]
    assert cli.main([*arguments, "--deployment", "127.0.0.1:8080"]) == 0
    found, served = yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"]
    assert found["file_sd_configs"][0]["files"] == [
        str(tmp_path / "runs" / "*.prometheus.json"),
        str(tmp_path / "other" / "one run.prometheus.json"),
    ]
    assert served["static_configs"] == [{"targets": ["127.0.0.1:8080"]}]
    provider = yaml.safe_load((folder / "grafana/provisioning/dashboards/skyrl_nat.yml").read_text())["providers"][0]
    assert sorted(Path(provider["options"]["path"]).glob("*.json")) == sorted((folder / "grafana/dashboards").iterdir())
    prometheus, grafana = capsys.readouterr().out.splitlines()
    assert prometheus.startswith(f"prometheus --config.file='{folder}'/prometheus.yml")
    assert "127.0.0.1" in prometheus and "127.0.0.1" in grafana, "nothing is open to the network"
    assert cli.main(arguments) == 0, "a second time"
    assert yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"][1]["static_configs"][0] == {
        "targets": []
    }


@pytest.mark.parametrize("target", ["8080", "host", "http://host:8080", "host:80 8080", "host:port"])
def test_a_deployment_that_is_no_target_is_refused(tmp_path, target: str) -> None:
    with pytest.raises(ConfigError, match="--deployment must be host:port"):
        write_assets(tmp_path / "new", [], [target])
    assert not (tmp_path / "new").exists()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path) -> None:
    (tmp_path / "file").touch()
    assert cli.main(["monitoring", str(tmp_path / "file")]) == 2


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_is_what_the_script_writes_and_its_panels_have_places_of_their_own(file: Path) -> None:
    assert file.read_text() == builder().text_of(file.stem), "run scripts/build_dashboards.py"
    board = json.loads(file.read_text())
    ids = [panel["id"] for panel in board["panels"]]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(ids)) == len(ids) and len(set(places)) == len(places)
    names = {variable["name"] for variable in board["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", file.read_text())) <= names | {"__all"}


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_grafanas_own_schema_has_every_key_of_a_dashboard_with_its_type(file: Path) -> None:
    pytest.importorskip("grafana_foundation_sdk", reason="it is among the packages for development")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    written = json.loads(file.read_text())
    read = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(written)))
    assert not list(lost(written, read)), "keys that Grafana does not know are dropped"


def lost(written: Any, read: Any, path: str = "") -> Any:
    """Yield the places where reading has not kept what was written."""
    if isinstance(written, dict) and isinstance(read, dict):
        for key, value in written.items():
            yield from lost(value, read.get(key), f"{path}/{key}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for number, (one, other) in enumerate(zip(written, read, strict=True)):
            yield from lost(one, other, f"{path}/{number}")
    elif written != read:
        yield path, written, read

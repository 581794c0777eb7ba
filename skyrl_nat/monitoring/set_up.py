"""Writing what Prometheus and Grafana read: scrape targets, alert rules, dashboards, provisioning."""

import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from skyrl_nat.errors import ConfigError
from skyrl_nat.monitoring.prometheus_names import TARGETS

ASSETS = Path(__file__).parent / "assets"
PROMETHEUS = "127.0.0.1:9090"
_TARGET = re.compile(r"[A-Za-z0-9.\-]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")


def write_assets(folder: Path, runs: Sequence[Path], deployments: Sequence[str]) -> list[str]:
    """Write everything into a folder and return the commands that start Prometheus and Grafana.

    Args:
        folder: To make; what an earlier call wrote is written anew.
        runs: Folders that hold run folders, or run folders.
        deployments: As `host:port`.

    Raises:
        ConfigError: A target is none.
    """
    wrong = [target for target in deployments if not _TARGET.fullmatch(target)]
    if wrong:
        raise ConfigError(f"--deployment must be host:port, got {wrong[0]!r}. Write for instance 127.0.0.1:8080")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"The folder of the files must be one, {folder} is a file. Name another one")
    folder = folder.resolve()
    shutil.copytree(ASSETS, folder, dirs_exist_ok=True)
    scraped = _read(folder / "prometheus.yml")
    found, served = scraped["scrape_configs"]
    found["file_sd_configs"][0]["files"] = [_targets_of(path) for path in runs]
    served["static_configs"] = [{"targets": list(deployments)}]
    _write(folder / "prometheus.yml", scraped)
    provider = folder / "grafana" / "provisioning" / "dashboards" / "skyrl_nat.yml"
    provided = _read(provider)
    provided["providers"][0]["options"]["path"] = str(folder / "grafana" / "dashboards")
    _write(provider, provided)
    quoted = shlex.quote(str(folder))
    return [
        f"prometheus --config.file={quoted}/prometheus.yml --storage.tsdb.path={quoted}/data "
        f"--web.listen-address={PROMETHEUS}",
        f"GF_PATHS_PROVISIONING={quoted}/grafana/provisioning GF_SERVER_HTTP_ADDR=127.0.0.1 "
        "grafana server --homepath=/usr/share/grafana",
    ]


def _targets_of(path: Path) -> str:
    """Return the pattern of files with targets: of one run, or of all in a folder; `*` may stand in a name alone."""
    path = path.expanduser().resolve()
    return str(path) + TARGETS if (path / "config.yaml").is_file() else str(path / f"*{TARGETS}")


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _write(path: Path, data: Any) -> None:
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")

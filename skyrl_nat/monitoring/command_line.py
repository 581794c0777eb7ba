"""The command that sets up monitoring; imports late."""

import argparse
from pathlib import Path
from typing import Any


def add_commands(commands: Any) -> None:
    """Add `monitoring` to the subparsers of `skyrl-nat`."""
    monitoring = commands.add_parser(
        "monitoring", help="write scrape targets, alert rules and dashboards for Prometheus and Grafana"
    )
    monitoring.add_argument("folder", type=Path, help="to make, or to write anew")
    monitoring.add_argument(
        "--runs",
        type=Path,
        action="append",
        metavar="FOLDER",
        help="a run folder, or one that holds run folders (root_dir); may be repeated; default: runs",
    )
    monitoring.add_argument(
        "--deployment", action="append", default=[], metavar="HOST:PORT", help="of a deployment; may be repeated"
    )
    monitoring.set_defaults(function=_monitoring, goes_on="the same command")


def _monitoring(options: argparse.Namespace) -> None:
    from skyrl_nat.monitoring.set_up import write_assets

    for command in write_assets(options.folder, options.runs or [Path("runs")], options.deployment):
        print(command)

"""The whole attack table in one profile as one user, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from security.private_machine import ORDINARY, ROOT, command_prefix

from skyrl_nat.sandbox.profiles import AUTOMATIC

FOLDER = Path(__file__).resolve().parents[2]
RUNNER = Path(__file__).with_name("attack_runner.py")
TIMEOUT_S = 900.0
USERS = (ROOT, ORDINARY) if os.geteuid() == 0 else (os.geteuid(),)
"""Root can try both; others only what they are themselves."""
PLACES = tuple((user, str(profile)) for profile in AUTOMATIC for user in USERS)


def run_table(user: int, profile: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return why the profile refuses this machine (empty if it holds), and attack -> `held` and `evidence`.

    Raises:
        PermissionError: Root may not make a private view of this machine.
    """
    command = [sys.executable, str(RUNNER), profile]
    if os.geteuid() == 0:
        with command_prefix(user, [Path(sys.executable)]) as prefix:
            rows = _run([*prefix, *command])
    else:
        rows = _run(command)
    probe = rows.pop("")
    return ("" if probe["held"] else probe["evidence"]), rows


def _run(command: list[str]) -> dict[str, dict[str, Any]]:
    ran = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    rows = {row["attack"]: row for row in map(json.loads, ran.stdout.splitlines())}
    assert "" in rows, f"the runner said nothing: {ran.stderr[-2000:]}"
    return rows

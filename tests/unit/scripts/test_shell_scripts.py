"""The shell programs of scripts/ are good shell, and say how they are used."""

import subprocess

import pytest
from loaded_script import ROOT

SCRIPTS = sorted((ROOT / "scripts").glob("*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_script_is_good_shell_and_stops_at_the_first_failure(script):
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert "set -euo pipefail" in script.read_text(encoding="utf-8")


def test_release_check_shows_its_options_where_one_is_unknown():
    done = subprocess.run(
        ["bash", str(ROOT / "scripts/release_check.sh"), "--fast"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2
    assert all(option in done.stderr for option in ("--dependencies-of VENV", "--no-train", "--keep FOLDER"))
    assert "set -euo" not in done.stderr

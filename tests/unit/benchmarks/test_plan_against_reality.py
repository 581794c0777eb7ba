"""The table of predictions is what the code predicts now."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "plan_against_reality.py"


def test_table_in_the_repository_is_what_the_plan_says_now() -> None:
    assert subprocess.run([sys.executable, SCRIPT, "--check"], check=False).returncode == 0

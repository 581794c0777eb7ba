"""The example notebook runs as it is, and prints what it says that it prints."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from notebook_cells import stored_outputs

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples/nat_agent_creation/environment.ipynb"


def test_cells_run_in_order_and_end_with_the_full_reward() -> None:
    command = [sys.executable, str(ROOT / "tests/notebook_cells.py"), str(NOTEBOOK)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed == stored_outputs(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    assert any("reward 1.0\n" in text for text in printed)

"""What a worker's process imports."""

import json
import subprocess
import sys

import pytest

ASK = """
import json, sys
from skyrl_nat.cluster.worker_imports import import_worker
import_worker(sys.argv[1])
print(json.dumps([name for name in ("sklearn", "scipy", "pandas", "torch") if name in sys.modules]))
import scipy.stats, sklearn.metrics
"""


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("skyrl_nat.workers.policy", ["torch"]),
        ("skyrl_nat.workers.reference", ["torch"]),
        ("skyrl_nat.engines.hf", ["torch"]),
        ("skyrl_nat.rewards.worker", []),
    ],
)
def test_a_worker_starts_with_what_it_uses_and_may_import_the_rest_later(module: str, expected: list[str]) -> None:
    command = [sys.executable, "-c", ASK, module]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240)
    assert json.loads(answer.stdout.splitlines()[-1]) == expected


def test_other_modules_find_everything_that_is_installed() -> None:
    command = [sys.executable, "-c", ASK, "skyrl_nat.evaluation.statistics"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240)
    assert "scipy" in json.loads(answer.stdout.splitlines()[-1])

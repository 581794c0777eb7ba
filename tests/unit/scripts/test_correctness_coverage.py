"""The contract and the tests agree, and disagreement is noticed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def cover(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/correctness_coverage.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_row_and_case_is_covered() -> None:
    done = cover()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count('"missing": []') == 2


@pytest.mark.parametrize(
    ("docstring", "fault"),
    [
        ("Rows 1, 2 and 4 to 73.", '"missing": ["3"]'),
        ("Rows 1 to 73, WS-99.", "WS-99: named by test_x.py::test_it, not in the contract"),
        ("Rows 1 to 73.", "8: not applicable in the contract, named by test_x.py::test_it"),
    ],
)
def test_gaps_and_contradictions_are_faults(tmp_path: Path, docstring: str, fault: str) -> None:
    (tmp_path / "test_x.py").write_text(f'def test_it() -> None:\n    """{docstring}"""\n')
    done = cover("--tests", str(tmp_path))
    assert done.returncode == 1
    assert fault in done.stdout + done.stderr

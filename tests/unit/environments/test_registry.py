"""A new family is a new folder and one line: what trains it knows none by name."""

from pathlib import Path

import pytest

from skyrl_nat.environments.registry import FAMILIES

PACKAGE = Path(__file__).parents[3] / "skyrl_nat"
GENERAL = (
    *("controller", "batching", "workers", "engines", "cluster", "rollouts", "evaluation"),
    *("rewards", "algorithms", "weight_sync", "checkpoint", "monitoring"),
)


@pytest.mark.parametrize("folder", GENERAL)
def test_what_trains_names_no_family(folder: str) -> None:
    sources = list((PACKAGE / folder).rglob("*.py"))
    assert sources
    said = [(path.name, name) for path in sources for name in FAMILIES if name in path.read_text(encoding="utf-8")]
    assert said == []

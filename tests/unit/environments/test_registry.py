"""A new family is a new folder and one line: what trains it knows none by name."""

from pathlib import Path

import pytest

from skyrl_nat.environments.nat_agent import rewards as nat_agent
from skyrl_nat.environments.registry import FAMILIES, VISIBLE_PARTS, visible_parts
from skyrl_nat.environments.task_dag import rewards as task_dag

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


def test_families_name_the_parts_that_need_no_hidden_test() -> None:
    assert VISIBLE_PARTS.keys() <= FAMILIES.keys()
    for name, weights in (("nat_agent", nat_agent.WEIGHTS), ("task_dag", task_dag.WEIGHTS)):
        found = visible_parts(name)
        assert found
        assert found == {part for part in weights if part.startswith("shaping_")}
        assert all(weights[part] == 0 for part in found), "form is not paid unless a config asks for it"
    assert visible_parts("some.module:opener") is None

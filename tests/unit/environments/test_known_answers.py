"""What families know of right and wrong answers, beside what their judges say (tests/unit/doctor/test_rewards.py)."""

import ast

import pytest

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.known_answers import known_answers as known_agents
from skyrl_nat.environments.registry import FAMILIES, open_family
from skyrl_nat.environments.task_dag.known_answers import known_answers as known_plans


@pytest.mark.parametrize("name", list(FAMILIES))
def test_every_shipped_family_knows_answers_of_every_kind(name: str) -> None:
    family = open_family(name, EnvironmentConfig(family=name))
    assert family.known_answers is not None
    assert family.runs_code is (name == "nat_agent")
    for task in load_tasks([f"builtin:{name}/validation"])[:4]:
        known = family.known_answers(task)
        assert known.right
        assert len(known.wrong) >= 2
        assert all(artifact not in known.right.values() for artifact in known.wrong.values())
    family.close()


def test_one_mistake_is_one_in_python_that_parses() -> None:
    task = load_tasks(["builtin:nat_agent/library_validation"])[0]
    known = known_agents(task)
    [name] = [name for name in known.wrong if name.startswith("one mistake in ")]
    register = next(path for path in known.wrong[name]["files"] if path.endswith("register.py"))
    changed, right = known.wrong[name]["files"][register], known.right["the solution"]["files"][register]
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(right))


def test_a_plan_lacks_a_task_that_nobody_waits_for() -> None:
    task = load_tasks(["builtin:task_dag/validation"])[0]
    known = known_plans(task)
    whole, cut = known.right["the reference"]["nodes"], known.wrong["a task is left out"]["nodes"]
    [gone] = [node["id"] for node in whole if node not in cut]
    assert all(gone not in node["depends_on"] for node in cut)

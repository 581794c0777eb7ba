"""Agents that are wrong in real ways: each gets the right finding, and a reward by how much of it works."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from security.judging import judge_all, make_validator, shipped_task, wrong_answers
from security.wrong_agents import WRONG_AGENTS

from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator
from skyrl_nat.types import RewardResult, Task

pytestmark = pytest.mark.timeout(600)
ORDER = (
    ("no description", "no tests", "no start script", "misspelt option", "wrong threshold"),
    ("wrong threshold", "bad attribute", "unknown function", "plain function", "syntax error"),
    ("wrong exception", "forgot to round", "tool raises", "yaml syntax", "import error"),
)
"""Each earns more than the next one."""


@pytest.fixture(scope="module")
def validator() -> Iterator[NatAgentValidator]:
    opened = make_validator()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def verdicts(validator: NatAgentValidator) -> dict[str, RewardResult]:
    task = shipped_task()
    return judge_all(validator, wrong_answers(task), task)


def test_there_are_enough_of_them() -> None:
    assert len(WRONG_AGENTS) >= 30


@pytest.mark.parametrize("name", WRONG_AGENTS)
def test_wrong_agent_gets_its_finding_and_its_reward(verdicts: dict[str, RewardResult], name: str) -> None:
    agent, verdict = WRONG_AGENTS[name], verdicts[name]
    assert any(agent.finding in finding for finding in verdict.findings), verdict
    assert agent.low <= verdict.total <= agent.high, verdict
    assert not verdict.is_success


@pytest.mark.parametrize("names", ORDER)
def test_rewards_are_ordered_by_how_much_works(verdicts: dict[str, RewardResult], names: tuple[str, ...]) -> None:
    totals = [verdicts[name].total for name in names]
    assert all(better > worse for better, worse in itertools.pairwise(totals)), dict(zip(names, totals, strict=True))


def test_honest_solutions_of_all_shipped_tasks_earn_one(validator: NatAgentValidator) -> None:
    tasks = load_tasks(["builtin:nat_agent/train", "builtin:nat_agent/validation"])

    def judge(task: Task) -> RewardResult:
        return validator.validate(task, {"files": task.hidden["solution"]}, seed=len(task.task_id))

    with ThreadPoolExecutor(2) as pool:
        verdicts = dict(zip((task.task_id for task in tasks), pool.map(judge, tasks), strict=True))
    assert {name: verdict for name, verdict in verdicts.items() if verdict.total != 1.0 or verdict.findings} == {}
    assert all(verdict.is_success and not verdict.suspicions for verdict in verdicts.values())


def test_source_layout_earns_one_too(validator: NatAgentValidator) -> None:
    task = shipped_task()
    files = {
        f"src/{path}" if path.startswith("agent/") else path: text.replace("agent/config.yml", "src/agent/config.yml")
        for path, text in task.hidden["solution"].items()
    }
    verdict = validator.validate(task, {"files": files}, is_final=True)
    assert (verdict.total, verdict.findings) == (1.0, [])


def test_the_start_script_runs_for_real_at_evaluation(validator: NatAgentValidator) -> None:
    task = shipped_task()
    solution = dict(task.hidden["solution"])
    sabotage = "import os\nif 'MCP_PORT' in os.environ:\n    raise RuntimeError('not here')\n"
    broken = solution | {"agent/register.py": sabotage + solution["agent/register.py"]}
    for files, expected in ((solution, 1.0), (broken, 0.0)):
        assert validator.validate(task, {"files": files}, is_final=True).parts["integration_mcp"] == expected
    assert validator.validate(task, {"files": broken}).parts["integration_mcp"] == 1.0


def test_one_answer_judged_twenty_times_at_once_has_one_verdict(validator: NatAgentValidator) -> None:
    task = shipped_task()
    answers = wrong_answers(task)
    mixed = {f"{name}/{number}": answers[name] for number in range(10) for name in ("wrong threshold", "test fails")}
    verdicts = judge_all(validator, mixed, task)
    for name in ("wrong threshold", "test fails"):
        mine = [verdict for key, verdict in verdicts.items() if key.startswith(name)]
        distinct = {repr((v.total, v.parts, v.findings, v.suspicions)) for v in mine}
        assert len(distinct) == 1, distinct


def test_fresh_inputs_differ_by_seed_and_the_verdict_does_not(validator: NatAgentValidator) -> None:
    task = shipped_task()
    files = task.hidden["solution"]
    assert {validator.validate(task, {"files": files}, seed=seed).total for seed in range(6)} == {1.0}

import json
import pickle

import pytest
import skyrl_gym
from skyrl_gym.envs.registration import registry
from task_plans import GOOD, STOP, TASK, node

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.task_dag.env import TaskDagEnv
from skyrl_nat.environments.task_dag.graph import Node
from skyrl_nat.environments.task_dag.payload import Decomposition, parse_nodes
from skyrl_nat.environments.task_dag.protocol import answer_text
from skyrl_nat.environments.task_dag.validator import TaskDagValidator


def environment(max_turns: int = 8, *, is_judged: bool = True) -> TaskDagEnv:
    extras = {"payload": json.dumps(TASK.payload), "max_turns": max_turns, "task_id": TASK.task_id}
    if is_judged:
        extras |= {"hidden": TASK.hidden, "validator": TaskDagValidator(EnvironmentConfig())}
    made = TaskDagEnv({}, extras)
    made.init([])
    return made


def split(*nodes: Node, of: str = "request") -> str:
    return answer_text(Decomposition(node=of, subtasks=nodes))


def test_a_plan_is_built_turn_by_turn_and_paid_at_the_end() -> None:
    env = environment()
    first = env.step(split(*GOOD))
    assert (first["done"], first["reward"]) == (False, 0.0)
    assert first["observations"] == [{"role": "user", "content": "4 tasks. Groups to split: none. Turns left: 7."}]
    last = env.step(STOP)
    assert (last["done"], last["reward"], last["observations"]) == (True, 1.0, [])
    assert last["metadata"]["is_success"] == 1
    assert last["metadata"]["is_policy_failure"] is False
    assert env.artifact()["num_turns"] == 2
    assert parse_nodes(env.artifact()["nodes"]) == GOOD


def test_groups_are_split_later_and_shown_until_then() -> None:
    env = environment()
    reply = env.step(split(GOOD[0], GOOD[1], node("finish", type="group")))
    assert "2 tasks. Groups to split: finish." in reply["observations"][0]["content"]
    parts = [node(item.id, *item.depends_on, type=item.type, description=item.description) for item in GOOD[2:]]
    reply = env.step(split(*parts, of="finish"))
    assert "4 tasks. Groups to split: none." in reply["observations"][0]["content"]
    assert env.artifact()["nodes"][-1]["parent"] == "finish"
    assert env.step(STOP)["reward"] > 0.9  # a turn more than the reference


def test_the_last_turn_is_announced_and_the_plan_judged_as_it_is() -> None:
    env = environment(max_turns=2)
    assert "This is your last turn" in env.step(split(*GOOD[:2]))["observations"][0]["content"]
    again = env.step(split(node("x"), node("y"), of="formats"))
    assert again["done"]
    assert 0.0 < again["reward"] < 0.5
    assert env.artifact()["is_stopped"] is False


@pytest.mark.parametrize(
    ("answers", "reason", "kind"),
    [
        (["I think"], "broken answer: an answer must be one JSON object", "is_broken_answer"),
        ([STOP], "invalid plan: a plan must have tasks before it stops", "is_invalid_plan"),
        ([split(node("a", "b"), node("b", "a"))], "in a ring, got 'a', 'b'", "is_invalid_plan"),
        ([split(node("a", "a"), node("b"))], "in a ring, got 'a'", "is_invalid_plan"),
        ([split(node("a"), node("a"))], "duplicate id 'a'", "is_invalid_plan"),
        ([split(node("a"), node("b", "a", "a"))], "must name every dependency once", "is_invalid_plan"),
        ([split(node("a"), node("b", "c"))], "unknown id 'c'", "is_invalid_plan"),
        ([split(node("t-3"), node("b", "t-03"))], "ambiguous", "is_invalid_plan"),
        ([split(node("a"), node("b"), of="c")], "node must be 'request' or a task of the plan", "is_invalid_plan"),
        ([split(node("a"), node("b")), split(node("c"), node("d"))], "must be decomposed once", "is_invalid_plan"),
        ([split(node("a"), node("b")), split(node("c", "a"), node("d"), of="a")], "in a ring", "is_invalid_plan"),
    ],
)
def test_what_breaks_the_rules_ends_the_episode_with_its_reason(answers: list[str], reason: str, kind: str) -> None:
    """DG-01, DG-02, DG-07."""
    env = environment()
    for answer in answers:
        output = env.step(answer)
    assert output["done"]
    assert output["reward"] == 0.0
    assert output["metadata"]["is_policy_failure"] is True
    assert reason in output["metadata"]["reason"]
    assert output["metadata"][kind] == 1


def test_no_step_after_an_invalid_plan_pays_or_changes_anything() -> None:
    """DG-04: ten tasks, the ring at the far end."""
    env = environment()
    rewards = [env.step(split(*(node(f"n{i}", *([f"n{i - 1}"] if i else [])) for i in range(5))))["reward"]]
    far = [node("n5", "n4"), node("n6", "n5"), node("n7", "n6", "n9"), node("n8", "n7"), node("n9", "n8")]
    output = env.step(split(*far, of="n0"))
    assert output["done"]
    assert output["metadata"]["is_policy_failure"] is True
    assert "ring, got" in output["metadata"]["reason"]
    before = env.artifact()
    rewards.append(output["reward"])
    for answer in (split(*GOOD), STOP, "x"):
        output = env.step(answer)
        assert output["done"]
        rewards.append(output["reward"])
    assert rewards == [0.0] * 5
    assert env.artifact() == before
    assert env.get_metrics()["reward_success"] == 0.0


def test_nothing_is_paid_after_a_good_end_either() -> None:
    """DG-04: the reward comes once."""
    env = environment()
    env.step(split(*GOOD))
    assert [env.step(STOP)["reward"] for _ in range(3)] == [1.0, 0.0, 0.0]


def test_at_the_end_the_plan_is_described() -> None:
    """10 hours of work in 7; nothing is said of a plan that is not finished."""
    env = environment()
    assert "execution_h" not in env.step(split(*GOOD))["metadata"]
    found = env.step(STOP)["metadata"]
    assert (found["num_subtasks"], found["depth"], found["execution_h"]) == (4, 1, 7.0)
    assert found["parallelism_ratio"] == pytest.approx(10 / 7)


def test_without_the_hidden_half_the_judge_sits_elsewhere() -> None:
    env = environment(is_judged=False)
    env.step(split(*GOOD))
    output = env.step(STOP)
    assert output["reward"] == 0.0
    assert "is_success" not in output["metadata"]


def test_how_far_answers_were_taken_is_in_the_artifact() -> None:
    env = environment()
    env.step(split(*GOOD))
    env.step('{"action": "think"}')
    assert env.artifact()["answer_share"] == (1.0 + 0.25) / 2
    assert env.artifact()["is_valid"] is True


def test_an_environment_can_be_pickled_between_turns() -> None:
    env = environment(is_judged=False)
    env.step(split(*GOOD))
    again = pickle.loads(pickle.dumps(env))
    again.step(STOP)
    assert again.artifact()["is_stopped"] is True


def test_skyrl_gym_makes_it_by_name() -> None:
    skyrl_gym.register("task_dag_for_tests", entry_point="skyrl_nat.environments.task_dag.env:TaskDagEnv")
    try:
        env = skyrl_gym.make("task_dag_for_tests", env_config={}, extras={"payload": TASK.payload})
        assert env.init([])[0][1]["content"].startswith("Request: Release version 4 of Orbit")
        assert env.step(split(*GOOD))["done"] is False
        assert env.step(STOP)["done"] is True
    finally:
        registry.pop("task_dag_for_tests")

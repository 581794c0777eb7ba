from task_plans import TASK, graph, node

from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.task_dag.payload import parse_request
from skyrl_nat.environments.task_dag.prompts import build_prompt, observation
from skyrl_nat.environments.task_dag.protocol import Decomposition, Stop, parse_answer
from skyrl_nat.environments.task_dag.task_types import TYPES


def test_prompt_says_what_is_needed_and_nothing_hidden() -> None:
    system, user = build_prompt(parse_request(TASK.payload), 8)
    assert [system["role"], user["role"]] == ["system", "user"]
    for text in (*TASK.payload["needs"], *TASK.payload["rules"], "4 to 6 tasks", "8 turns", "2 people", "11 h"):
        assert text in user["content"]
    for name, kind in TYPES.items():
        assert f"{name} {kind.hours:g} h" in user["content"] or name == "group"
    assert "keyword" not in system["content"] + user["content"]


def test_the_examples_in_the_prompt_are_answers_that_are_taken() -> None:
    lines = build_prompt(parse_request(TASK.payload), 8)[0]["content"].splitlines()
    answers = [parse_answer(line[line.index("{") :]) for line in lines if "{" in line]
    assert [type(answer) for answer in answers] == [Decomposition, Stop]


def test_prompts_are_short_enough_for_a_small_model() -> None:
    """403 tokens of SmolLM2 at most, 358 on average, are 1,900 characters."""
    tasks = load_tasks(["builtin:task_dag/train"])
    sizes = [sum(len(m["content"]) for m in build_prompt(parse_request(task.payload), 8)) for task in tasks]
    assert max(sizes) < 1900


def test_observation_names_open_groups_and_the_last_turn() -> None:
    plan = graph(node("a"), node("g", type="group"))
    assert observation(plan, 3) == "1 tasks. Groups to split: g. Turns left: 3."
    assert observation(plan, 1).endswith('This is your last turn: answer {"action": "stop"} if the plan is complete.')


def test_observation_stays_short_however_many_groups_are_open() -> None:
    plan = graph(*(node(f"{i:02}{'g' * 38}", type="group") for i in range(50)))
    text = observation(plan, 3)
    assert "and 40 more" in text
    assert len(text) < 600

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_plans import GOOD, STOP

from skyrl_nat.environments.task_dag.payload import Decomposition
from skyrl_nat.environments.task_dag.protocol import Broken, Stop, answer_text, parse_answer

FIRST = {"id": "a", "type": "make", "description": "Write it", "depends_on": []}
SECOND = {"id": "b", "type": "test", "description": "Test it", "depends_on": ["a"]}


def text(**changes: object) -> str:
    return json.dumps({"action": "decompose", "node": "request", "subtasks": [FIRST, SECOND]} | changes)


def test_answers_are_read_as_they_are_written() -> None:
    decomposition = Decomposition(node="request", subtasks=GOOD)
    assert parse_answer(answer_text(decomposition)) == decomposition
    assert parse_answer(STOP) == Stop()
    assert parse_answer(f"\n {STOP}\n") == Stop()


def test_dependencies_may_be_left_out_and_ids_are_brought_into_normal_form() -> None:
    bare = {"id": "E\u0301", "type": "make", "description": " Write it "}
    answer = parse_answer(text(subtasks=[bare, SECOND]))
    assert isinstance(answer, Decomposition)
    first = answer.subtasks[0]
    assert (first.id, first.depends_on, first.description) == ("\u00c9", (), "Write it")


@pytest.mark.parametrize(
    ("answer", "reason", "share"),
    [
        ("", "one JSON object and nothing else", 0.0),
        ("I stop.", "one JSON object and nothing else", 0.0),
        (f"```json\n{STOP}\n```", "one JSON object and nothing else", 0.0),
        (f"{STOP} {STOP}", "one JSON object and nothing else", 0.0),
        ("[1]", "must be one JSON object, got", 0.0),
        ("null", "must be one JSON object, got None", 0.0),
        ('{"action": NaN}', "NaN is no JSON number", 0.0),
        ("[" * 10_000, "nests too deeply", 0.0),
        ('{"a":' * 3000, "nests too deeply", 0.0),
        ("9" * 5000, "an answer must be", 0.0),
        (" " * 20_001, "at most 20000 characters", 0.0),
        ('{"action": "stop", "action": "stop"}', "every key must come once", 0.0),
        ("{}", "action must be 'decompose' or 'stop', got None", 0.25),
        ('{"action": ["stop"]}', "action must be 'decompose' or 'stop'", 0.25),
        ('{"action": "stop", "why": 1}', "a stop must have the keys action", 0.25),
        (text(why=1), "a decomposition must have the keys", 0.25),
        ('{"action": "decompose"}', "a decomposition must have the keys", 0.25),
        (text(node=3), "node must be text", 0.5),
        (text(subtasks={}), "subtasks must be a list of 2 to 5", 0.5),
        (text(subtasks=[FIRST]), "a list of 2 to 5, got 1", 0.5),
        (text(subtasks=[FIRST] * 6), "a list of 2 to 5, got 6", 0.5),
        (text(subtasks=[1, 2]), "a subtask must be an object", 0.75),
        (text(subtasks=[FIRST, SECOND | {"hours": 3}]), "a subtask must have the keys", 0.75),
        (text(subtasks=[FIRST, SECOND | {"type": "sleep"}]), "type must be one of research", 0.75),
        (text(subtasks=[FIRST, SECOND | {"type": None}]), "type must be text", 0.75),
        (text(subtasks=[FIRST, SECOND | {"id": "b "}]), "an id must have", 0.75),
        (text(subtasks=[FIRST, SECOND | {"description": "  "}]), "a description must have 1 to 200", 0.75),
        (text(subtasks=[FIRST, SECOND | {"description": "x" * 201}]), "got 201", 0.75),
        (text(subtasks=[FIRST, SECOND | {"description": "\ud800"}]), "description must be text on one line", 0.75),
        (text(subtasks=[FIRST, SECOND | {"depends_on": "a"}]), "depends_on must be a list", 0.75),
        (text(subtasks=[FIRST, SECOND | {"depends_on": [["a"]]}]), "depends_on must be text", 0.75),
    ],
)
def test_broken_answers_have_one_clear_reason(answer: str, reason: str, share: float) -> None:
    found = parse_answer(answer)
    assert isinstance(found, Broken)
    assert reason in found.reason
    assert found.share == share
    assert len(found.reason) < 400
    found.reason.encode("utf-8")


@settings(max_examples=50)
@given(st.text())
def test_no_text_raises(answer: str) -> None:
    assert isinstance(parse_answer(answer), Broken | Stop | Decomposition)


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(["action", "node", "subtasks", "id", "type", "description", "depends_on"]), x
            )
        ),
    )
)
def test_no_json_raises(value: object) -> None:
    parse_answer(json.dumps(value))
    parse_answer(text(subtasks=value))
    parse_answer(text(subtasks=[FIRST, value]))

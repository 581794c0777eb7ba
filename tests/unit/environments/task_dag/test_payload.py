import pytest
from task_plans import GOOD, TASK

from skyrl_nat.environments.task_dag.payload import node_json, parse_hidden, parse_nodes, parse_request
from skyrl_nat.errors import DataError


def test_both_halves_become_records() -> None:
    request, hidden = parse_request(TASK.payload), parse_hidden(TASK.hidden)
    assert request.needs[2] == "test the payment page"
    assert hidden.order == ((0, 1), (2, 3))
    assert tuple(hidden.reference_nodes) == GOOD


def test_tasks_survive_json() -> None:
    assert parse_nodes([node_json(item) for item in GOOD]) == GOOD


@pytest.mark.parametrize(
    "change", [{"needs": []}, {"num_workers": 0}, {"max_tasks": 3}, {"deadline_h": 0}, {"extra": 1}, {"rules": "x"}]
)
def test_payloads_that_are_no_request_are_refused(change: dict) -> None:
    with pytest.raises(DataError, match="must have the fields of Request"):
        parse_request(TASK.payload | change)


@pytest.mark.parametrize(
    "change", [{"requirements": []}, {"order": [[0, 4]]}, {"order": [[0]]}, {"reference": []}, {"reference": [{}]}]
)
def test_hidden_parts_that_are_not_whole_are_refused(change: dict) -> None:
    with pytest.raises(DataError, match="the hidden part of a task_dag task must be whole"):
        parse_hidden(TASK.hidden | change)

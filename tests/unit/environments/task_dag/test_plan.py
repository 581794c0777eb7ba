import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_plans import GOOD, node

from skyrl_nat.environments.task_dag.graph import Node, PlanGraph
from skyrl_nat.environments.task_dag.plan import MAX_NODES, Fault, Problem, check_plan
from skyrl_nat.environments.task_dag.task_types import TYPES


def faults(*nodes: Node) -> dict[Fault, list[Problem]]:
    found: dict[Fault, list[Problem]] = {}
    for problem in check_plan(nodes):
        found.setdefault(problem.fault, []).append(problem)
    return found


def test_a_good_plan_has_no_problem() -> None:
    assert check_plan(GOOD) == []


@pytest.mark.parametrize(
    ("nodes", "ring", "blocked"),
    [
        ([node("A", "A")], {"A"}, set()),
        ([node("A", "B"), node("B", "A")], {"A", "B"}, set()),
        (
            [
                *(node(f"r{i}", f"r{(i + 1) % 5}") for i in range(5)),
                node("c1"),
                node("c2", "c1"),
                node("c3", "c2"),
            ],
            {f"r{i}" for i in range(5)},
            set(),
        ),
        ([node("A", "B"), node("B", "A"), node("C", "A"), node("D", "C"), node("E")], {"A", "B"}, {"C", "D"}),
    ],
)
def test_rings_are_refused_at_once_and_name_their_members_only(nodes: list, ring: set, blocked: set) -> None:
    """DG-01."""
    started = time.perf_counter()
    found = faults(*nodes)
    assert time.perf_counter() - started < 0.1
    assert set(found[Fault.cycle][0].ids) == ring
    assert {name for problem in found.get(Fault.blocked, []) for name in problem.ids} == blocked
    message = found[Fault.cycle][0].message
    assert all(f"'{item.id}'" in message for item in nodes if item.id in ring)
    assert not any(f"'{item.id}'" in message for item in nodes if item.id not in ring)


def test_what_leads_into_a_ring_is_no_member_and_not_blocked() -> None:
    """DG-01: a task that the ring waits for can be done."""
    found = faults(node("first"), node("A", "B", "first"), node("B", "A"))
    assert set(found[Fault.cycle][0].ids) == {"A", "B"}
    assert Fault.blocked not in found


def test_two_rings_are_two_problems_and_what_lies_between_is_blocked() -> None:
    """DG-01."""
    found = faults(node("a", "b"), node("b", "a"), node("m", "a"), node("x", "y", "m"), node("y", "x"))
    assert [set(problem.ids) for problem in found[Fault.cycle]] == [{"a", "b"}, {"x", "y"}]
    assert found[Fault.blocked][0].ids == ("m",)


def test_a_part_that_waits_for_its_own_group_is_a_ring() -> None:
    """DG-01."""
    found = faults(node("g", type="group"), node("p", "g", parent="g"), node("q", parent="g"))
    assert set(found[Fault.cycle][0].ids) == {"g", "p"}
    assert Fault.blocked not in found


def test_groups_whose_parts_wait_for_each_other_are_a_ring() -> None:
    """DG-01."""
    found = faults(
        node("x", type="group"),
        node("y", "x", type="group"),
        node("x1", "y1", parent="x"),
        node("y1", parent="y"),
    )
    assert set(found[Fault.cycle][0].ids) == {"x", "y", "x1", "y1"}


def test_parents_in_a_ring_and_waiting_for_the_request_are_rings() -> None:
    """DG-01."""
    assert set(faults(node("a", parent="b"), node("b", parent="a"))[Fault.cycle][0].ids) == {"a", "b"}
    assert set(faults(node("a", "request"))[Fault.cycle][0].ids) == {"request", "a"}


def test_duplicate_ids_are_refused_before_anything_else_is_looked_at() -> None:
    """DG-02."""
    found = faults(node("A", "A", "A"), node("A"))
    assert set(found) == {Fault.duplicate_id, Fault.repeated_dependency}
    assert "duplicate id 'A'" in found[Fault.duplicate_id][0].message
    assert found[Fault.repeated_dependency][0].ids == ("A",)


def test_a_task_cannot_have_the_requests_id() -> None:
    """DG-02."""
    assert Fault.duplicate_id in faults(node("request"))


def test_repeated_dependencies_are_reported_without_duplicate_ids() -> None:
    """DG-02."""
    assert set(faults(node("a"), node("b", "a", "a"))) == {Fault.repeated_dependency}


def test_composed_and_decomposed_ids_are_the_same_task() -> None:
    """DG-07."""
    assert set(faults(node("\u00c9", "x"), node("x", "E\u0301"))) == {Fault.cycle}
    assert Fault.duplicate_id in faults(node("\u00c9"), node("E\u0301"))


@pytest.mark.parametrize("spelling", ["TASK-03", "task-3", "TASK-3 "])
def test_a_ring_cannot_hide_behind_another_spelling(spelling: str) -> None:
    """DG-07."""
    found = faults(node("TASK-3", "b"), node("b", spelling))
    assert set(found) == {Fault.ambiguous_id, Fault.cycle}
    assert set(found[Fault.cycle][0].ids) == {"TASK-3", "b"}


def test_two_spellings_that_are_both_there_are_ambiguous_and_their_ring_is_found() -> None:
    """DG-07."""
    found = faults(node("A", "TASK-3"), node("TASK-3"), node("TASK-03", "A"))
    assert set(found[Fault.ambiguous_id][0].ids) == {"TASK-3", "TASK-03"}
    assert set(found[Fault.cycle][0].ids) == {"A", "TASK-3"}


def test_blanks_at_the_end_of_an_id_are_refused_and_ambiguous() -> None:
    """DG-07."""
    found = faults(node("a", "b"), node("a ", "a"), node("b", "a "))
    assert {Fault.bad_id, Fault.ambiguous_id, Fault.cycle} == set(found)


def test_unknown_ids_and_types_are_named() -> None:
    found = faults(node("a", "nobody"), node("b", parent="nowhere"), node("c", type="sleep"))
    assert [problem.ids for problem in found[Fault.unknown_id]] == [("a",), ("b",)]
    assert found[Fault.unknown_type][0].ids == ("c",)


def test_messages_name_ten_ids_and_count_the_rest() -> None:
    ring = [node(f"n{i}", f"n{(i + 1) % 30}") for i in range(30)]
    [problem] = check_plan(ring)
    assert len(problem.ids) == 30
    assert problem.message.count("'n") == 10
    assert "and 20 more" in problem.message


def chain(size: int) -> list[Node]:
    return [node(f"n{i}", *([f"n{i - 1}"] if i else [])) for i in range(size)]


def star(size: int) -> list[Node]:
    return [node(f"n{i}", *(["n0"] if i else [])) for i in range(size)]


def nested(size: int) -> list[Node]:
    return [node(f"n{i}", parent=f"n{i - 1}" if i else "request") for i in range(size)]


@pytest.mark.parametrize("make", [chain, star, nested])
def test_five_thousand_tasks_take_no_recursion_and_under_two_seconds(make) -> None:
    """DG-05."""
    nodes = make(MAX_NODES)
    started = time.process_time()
    assert check_plan(nodes) == []
    plan = PlanGraph(nodes)
    plan.critical_path(TYPES)
    plan.width(TYPES)
    plan.depth()
    plan.topological_order()
    assert time.process_time() - started < 2.0


def test_ring_of_five_thousand_is_found_in_under_two_seconds() -> None:
    """DG-05."""
    started = time.process_time()
    [problem] = check_plan([*chain(MAX_NODES)[1:], node("n0", f"n{MAX_NODES - 1}")])
    assert time.process_time() - started < 2.0
    assert len(problem.ids) == MAX_NODES


def test_larger_plans_are_refused_unread() -> None:
    """DG-05."""
    [problem] = check_plan(chain(MAX_NODES + 1))
    assert problem.fault is Fault.too_large
    assert problem.message == "a plan must have at most 5000 tasks, got 5001. Decompose less"


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 11), max_size=3, unique=True), min_size=1, max_size=12))
def test_a_plan_without_problems_is_a_graph_and_one_with_problems_is_none(waits: list[list[int]]) -> None:
    nodes = [node(f"n{i}", *(f"n{j}" for j in others)) for i, others in enumerate(waits)]
    problems = check_plan(nodes)
    known = {item.id for item in nodes}
    assert (Fault.unknown_id in {p.fault for p in problems}) == any(not known >= {*n.depends_on} for n in nodes)
    if not problems:
        assert len(PlanGraph(nodes).topological_order()) == len(nodes)
    for problem in problems:
        if problem.fault is Fault.cycle:  # each member waits for a member
            assert all(set(item.depends_on) & set(problem.ids) for item in nodes if item.id in problem.ids)

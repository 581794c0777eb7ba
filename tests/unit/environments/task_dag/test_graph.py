import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_plans import GOOD, graph, node

from skyrl_nat.environments.task_dag.graph import PlanGraph
from skyrl_nat.environments.task_dag.task_types import TYPES
from skyrl_nat.errors import DataError


def test_measures_of_a_flat_plan_by_hand() -> None:
    plan = graph(*GOOD)
    assert plan.critical_path(TYPES) == (["formats", "changelog"], 7.0)
    assert plan.depth() == 1
    assert plan.width(TYPES) == 2
    assert len(plan.leaves) == 4


def test_who_depends_on_a_group_waits_for_all_its_parts() -> None:
    plan = graph(
        node("prepare", type="group"),
        node("ship", "prepare", type="deliver"),
        node("look", type="research", parent="prepare"),
        node("draw", "look", type="design", parent="prepare"),
    )
    assert plan.topological_order() == ["look", "draw", "ship"]
    assert plan.critical_path(TYPES) == (["look", "draw", "ship"], 3 + 2 + 1.0)
    assert plan.depth() == 2
    assert plan.width(TYPES) == 1


def test_parts_of_a_group_wait_for_what_the_group_waits_for() -> None:
    plan = graph(
        node("first"), node("later", "first", type="group"), node("a", parent="later"), node("b", parent="later")
    )
    order = plan.topological_order()
    assert order[0] == "first"
    assert plan.width(TYPES) == 2
    assert {plan.node(number).id for number in plan.after(1)} == {"later", "a", "b"}


def test_tasks_that_end_as_others_start_do_not_run_at_once() -> None:
    plan = graph(node("a"), node("b", "a"), node("c", "b"))
    assert plan.width(TYPES) == 1


def test_empty_plan_has_no_depth_and_no_path() -> None:
    plan = graph()
    assert (plan.depth(), plan.width(TYPES), plan.critical_path(TYPES)) == (0, 0, ([], 0.0))


@pytest.mark.parametrize(
    "nodes",
    [
        [node("a", "a")],
        [node("a", "b"), node("b", "a")],
        [node("a"), node("a")],
        [node("a", "b")],
        [node("a", parent="b")],
        [node("a", parent="b"), node("b", parent="a")],
    ],
)
def test_plans_with_faults_make_no_graph(nodes: list) -> None:
    with pytest.raises(DataError, match="Check it first"):
        PlanGraph(nodes)


@settings(max_examples=50)
@given(st.data(), st.integers(1, 25))
def test_order_is_topological_and_the_critical_path_is_the_longest(data: st.DataObject, size: int) -> None:
    nodes = [
        node(f"t{i}", *sorted({f"t{j}" for j in data.draw(st.lists(st.integers(0, i - 1), max_size=3))} if i else ()))
        for i in range(size)
    ]
    plan = PlanGraph(nodes)
    order = plan.topological_order()
    places = {name: place for place, name in enumerate(order)}
    assert sorted(order) == sorted(item.id for item in nodes)
    assert all(places[name] < places[item.id] for item in nodes for name in item.depends_on)
    longest: dict[str, int] = {}
    for item in nodes:  # dependencies come before
        longest[item.id] = 1 + max((longest[name] for name in item.depends_on), default=0)
    path, hours = plan.critical_path(TYPES)
    assert hours == 4.0 * max(longest.values()) == 4.0 * len(path)

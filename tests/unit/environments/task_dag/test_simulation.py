import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from task_plans import GOOD, graph, node

from skyrl_nat.environments.task_dag.graph import Node, PlanGraph
from skyrl_nat.environments.task_dag.simulation import Execution, State, simulate
from skyrl_nat.environments.task_dag.task_types import CALM, TYPES


def counts(execution: Execution) -> dict[str, int]:
    return {state.value: execution.count(state) for state in State if execution.count(state)}


@pytest.mark.parametrize(("num_workers", "hours"), [(1, 10.0), (2, 7.0), (9, 7.0)])
def test_hours_of_a_plan_by_hand(num_workers: int, hours: float) -> None:
    execution = simulate(graph(*GOOD), num_workers=num_workers, types=CALM)
    assert execution.hours == hours
    assert counts(execution) == {"done": 4}
    assert execution.done_share == 1.0


def test_the_task_with_the_longest_way_behind_it_goes_first() -> None:
    plan = graph(node("short", type="review"), node("long", type="make"), node("end", "long", type="make"))
    assert simulate(plan, num_workers=1, types=CALM).hours == 9.0
    plan = graph(*(node(f"r{i}", type="review") for i in range(4)), node("a"), node("b", "a"))
    assert simulate(plan, num_workers=2, types=CALM).hours == 8.0  # a and b beside the four reviews


def test_what_waits_for_a_failed_task_is_skipped_and_other_branches_go_on() -> None:
    """DG-08: 25 tasks, the one in the middle fails, 11 depend on it."""
    before = [node("n0"), *(node(f"n{i}", f"n{i - 1}") for i in range(1, 7))]
    middle = [node("middle", "n6")]
    behind = [node("b0", "middle"), *(node(f"b{i}", f"b{i - 1}") for i in range(1, 11))]
    beside = [node(f"s{i}") for i in range(6)]
    plan = PlanGraph([*before, *middle, *behind, *beside])
    execution = simulate(plan, num_workers=2, types=CALM, doomed={8})
    assert counts(execution) == {"done": 13, "failed": 1, "skipped": 11}
    assert len(execution.states) == 25
    assert execution.done_share == 13 / 25
    assert all(execution.states[f"s{i}"] is State.done for i in range(6))


def test_nothing_starts_at_the_deadline_or_later() -> None:
    """DG-08: what was never reached stays in the denominator."""
    plan = PlanGraph([node("n0"), *(node(f"n{i}", f"n{i - 1}") for i in range(1, 5))])
    execution = simulate(plan, num_workers=1, types=CALM, deadline_h=8.0)
    assert counts(execution) == {"done": 2, "unreached": 3}
    assert execution.done_share == 2 / 5
    assert execution.hours == 8.0


def test_a_failure_outweighs_the_deadline() -> None:
    plan = graph(
        node("bad", type="review"), node("slow", type="make"), node("late", "slow"), node("end", "late", "bad")
    )
    execution = simulate(plan, num_workers=2, types=CALM, deadline_h=4.0, doomed={1})
    assert execution.states == {
        "bad": State.failed,
        "slow": State.done,
        "late": State.unreached,
        "end": State.skipped,
    }


def test_failure_of_a_part_skips_what_waits_for_the_group_but_not_the_other_parts() -> None:
    plan = graph(
        node("g", type="group"),
        node("after", "g"),
        node("p", parent="g"),
        node("q", parent="g"),
        node("inner", type="group"),
        node("i1", parent="inner"),
    )
    execution = simulate(plan, num_workers=1, types=CALM, doomed={3})
    assert execution.states == {"after": State.skipped, "p": State.failed, "q": State.done, "i1": State.done}


def test_parts_of_a_group_are_skipped_where_the_group_cannot_start() -> None:
    plan = graph(node("a"), node("g", "a", type="group"), node("p", parent="g"), node("q", "p", parent="g"))
    execution = simulate(plan, num_workers=1, types=CALM, doomed={1})
    assert counts(execution) == {"failed": 1, "skipped": 2}
    assert execution.hours == 4.0


def test_a_group_that_was_never_decomposed_cannot_be_done() -> None:
    execution = simulate(graph(node("g", type="group"), node("a")), num_workers=1, seed=1)
    assert execution.states["g"] is State.failed


def test_the_same_seed_gives_the_same_execution_and_rates_are_as_declared() -> None:
    plan = PlanGraph([node(f"n{i}") for i in range(2000)])
    first, second = (simulate(plan, num_workers=50, seed=5) for _ in range(2))
    assert first == second
    assert first != simulate(plan, num_workers=50, seed=6)
    rate = TYPES["make"].failure_rate  # 3 standard deviations of 2000 draws are 0.018
    assert abs(first.count(State.failed) / 2000 - rate) < 3 * math.sqrt(rate * (1 - rate) / 2000)


def test_named_work_has_the_same_luck_wherever_it_stands() -> None:
    forward, backward = graph(node("a"), node("b", "a")), graph(node("b", "a"), node("a"))
    for seed in range(40):
        one = simulate(forward, num_workers=1, seed=seed, luck={1: "A", 2: "B"})
        other = simulate(backward, num_workers=1, seed=seed, luck={2: "A", 1: "B"})
        assert one.states == other.states
        assert one.hours == pytest.approx(other.hours)


def test_without_workers_nothing_is_simulated() -> None:
    with pytest.raises(ValueError, match="num_workers must be >= 1, got 0"):
        simulate(graph(), num_workers=0)
    assert simulate(graph(), num_workers=1).done_share == 0.0


def chain(size: int) -> list[Node]:
    return [node(f"n{i}", *([f"n{i - 1}"] if i else [])) for i in range(size)]


def star(size: int) -> list[Node]:
    return [node(f"n{i}", *(["n0"] if i else [])) for i in range(size)]


@pytest.mark.parametrize("make", [chain, star])
def test_when_the_first_of_five_thousand_fails_all_others_are_skipped(make) -> None:
    """DG-05."""
    plan = PlanGraph(make(5000))
    started = time.perf_counter()
    execution = simulate(plan, num_workers=3, doomed={1})
    assert time.perf_counter() - started < 2.0
    assert counts(execution) == {"failed": 1, "skipped": 4999}


@given(st.data(), st.integers(1, 30), st.integers(1, 4), st.sampled_from([3.0, 10.0, math.inf]))
def test_states_add_up_on_any_plan(data: st.DataObject, size: int, num_workers: int, deadline_h: float) -> None:
    """DG-08."""
    nodes = []
    for i in range(size):
        others = {f"t{j}" for j in data.draw(st.lists(st.integers(0, i - 1), max_size=3))} if i else set()
        nodes.append(node(f"t{i}", *sorted(others)))
    failing = data.draw(st.integers(1, size))
    execution = simulate(PlanGraph(nodes), num_workers=num_workers, types=CALM, deadline_h=deadline_h, doomed={failing})
    assert sum(execution.count(state) for state in State) == len(execution.states) == size
    assert execution.done_share == execution.count(State.done) / size
    states = execution.states
    for item in nodes:
        earlier = {states[name] for name in item.depends_on}
        if earlier & {State.failed, State.skipped}:
            assert states[item.id] is State.skipped
        elif State.unreached in earlier:
            assert states[item.id] is State.unreached
        elif deadline_h == math.inf and item.id != f"t{failing - 1}":
            assert states[item.id] is State.done  # independent branches still run

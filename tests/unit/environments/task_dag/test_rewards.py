import pytest
from task_plans import ARCHIVE, CHANGELOG, FORMATS, GOOD, PAYMENT, TASK, graph, node

from skyrl_nat.environments.task_dag.episodes import reference_answers
from skyrl_nat.environments.task_dag.graph import Node
from skyrl_nat.environments.task_dag.payload import parse_hidden, parse_request
from skyrl_nat.environments.task_dag.rewards import (
    WEIGHTS,
    Effort,
    compute_parts,
    cost,
    diversity,
    empty_parts,
    parallelism,
    shape,
    token_budget,
)

REQUEST, HIDDEN = parse_request(TASK.payload), parse_hidden(TASK.hidden)
REFERENCE = graph(*GOOD)


def parts_of(*nodes: Node, num_turns: int = 2, seed: int = 0) -> dict[str, float]:
    effort = Effort(num_turns=num_turns)
    return compute_parts(REQUEST, HIDDEN, graph(*nodes), effort, seed=seed, findings=[])


def test_weights_add_up_to_one_and_form_alone_pays_nothing() -> None:
    assert sum(WEIGHTS.values()) == pytest.approx(1.0)
    assert WEIGHTS["shaping_answers"] == 0.0
    assert empty_parts(0.5) == dict.fromkeys(WEIGHTS, 0.0) | {"shaping_answers": 0.5}


@pytest.mark.parametrize("seed", range(5))
def test_the_reference_earns_one_in_every_part(seed: int) -> None:
    assert parts_of(*GOOD, seed=seed) == dict.fromkeys(WEIGHTS, 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_work_in_another_order_with_other_ids_earns_the_same(seed: int) -> None:
    other = (
        node("x4", "x3", type="deliver", description="Put the download archive online"),
        node("x3", type="test", description="Try the payment page"),
        node("x2", "x1", type="make", description="List changelog entries"),
        node("x1", type="research", description="Which packaging format suits"),
    )
    assert parts_of(*other, seed=seed) == dict.fromkeys(WEIGHTS, 1.0)


def test_a_missing_requirement_lowers_what_is_gated_by_hand() -> None:
    """3 of 4 needs, 1 of 2 rules: the gate is 0.375; 3 of at least 4 tasks."""
    parts = parts_of(FORMATS, CHANGELOG, PAYMENT)
    assert parts["coverage"] == 0.75
    assert parts["order"] == 0.5
    assert parts["parallelism"] == parts["cost"] == parts["diversity"] == pytest.approx(0.375)
    assert parts["shape"] == pytest.approx(0.375 * 0.75)
    assert 0.6 < parts["success"] < 0.9


def test_parallelism_is_the_share_of_the_time_saved() -> None:
    """The reference takes 7 hours of 10 with two workers."""
    chain = graph(FORMATS, CHANGELOG, node("payment", "changelog", type="test"), ARCHIVE)
    assert parallelism(REQUEST, chain, REFERENCE) == 0.0
    waits = graph(
        FORMATS, CHANGELOG, node("payment", "formats", type="test"), node("archive", "changelog", type="deliver")
    )
    assert parallelism(REQUEST, waits, REFERENCE) == pytest.approx((10 - 8) / 3 / 0.95)
    assert parallelism(REQUEST, REFERENCE, REFERENCE) == 1.0


def test_idle_tasks_beside_a_chain_do_not_make_it_parallel() -> None:
    idle = [node(f"i{i}", type="review") for i in range(2)]
    chain = (FORMATS, CHANGELOG, node("payment", "changelog", type="test"), ARCHIVE)
    assert parallelism(REQUEST, graph(*chain, *idle), REFERENCE) == 0.0


def test_where_nothing_can_be_saved_as_fast_as_the_reference_is_full() -> None:
    two = graph(node("a"), node("b", "a"))
    assert parallelism(REQUEST, two, two) == 1.0
    assert parallelism(REQUEST, graph(node("a"), node("b", "a"), node("c", "b")), two) == 0.0


def test_shape_falls_outside_of_the_range_by_hand() -> None:
    assert shape(REQUEST, graph(*GOOD)) == 1.0
    assert shape(REQUEST, graph(*(node(f"n{i}") for i in range(12)))) == 6 / 12
    assert shape(REQUEST, graph(node("a"))) == 1 / 4
    deep = [node("g1", type="group"), node("g2", type="group", parent="g1"), node("g3", type="group", parent="g2")]
    assert shape(REQUEST, graph(*deep, *(node(f"n{i}", parent="g3") for i in range(4)))) == 2 / 4


def test_cost_by_hand() -> None:
    reference = HIDDEN.reference
    budget = sum(map(len, reference_answers(TASK))) / 2
    assert token_budget(reference) == budget
    assert cost(Effort(num_turns=1), reference) == cost(Effort(num_turns=2), reference) == 1.0
    assert cost(Effort(num_turns=4), reference) == 0.5
    assert cost(Effort(num_turns=2, num_tokens=int(budget)), reference) == 1.0
    assert cost(Effort(num_turns=2, num_tokens=int(8 * budget)), reference) == 0.125
    assert cost(Effort(num_turns=4, num_tokens=int(2 * budget)), reference) == 0.25


@pytest.mark.parametrize(
    ("texts", "share"),
    [
        (["Write the text", "Draw the chart"], 1.0),
        (["Write the text"] * 5, 1 / 5),
        (["Write the text", "write THE text!", "the text: write"], 1 / 3),
        (["Write the long text now", "Write the long text now again"], 1 / 2),  # 5 of 6 words in common
        (["Write the text", "Test the text"], 1.0),  # 2 of 4
        (["x", "!!", "do"], 0.0),
        ([], 0.0),
    ],
)
def test_diversity_by_hand(texts: list[str], share: float) -> None:
    nodes = [node(f"n{i}", description=text) for i, text in enumerate(texts)]
    assert diversity(nodes) == share


def test_success_needs_the_order_that_was_asked_for() -> None:
    """Both tasks that start too early fail every time: half of the tasks are left."""
    early = (
        FORMATS,
        node("changelog", description=CHANGELOG.description),
        PAYMENT,
        node("archive", type="deliver", description=ARCHIVE.description),
    )
    parts = parts_of(*early)
    assert parts["coverage"] == 1.0
    assert parts["order"] == parts["parallelism"] == parts["diversity"] == 0.0
    assert parts["success"] == pytest.approx(0.5 / 0.95, abs=0.05)


def test_all_tasks_are_in_the_denominator_of_success() -> None:
    """DG-08: fillers that nobody can do count as tasks that are not done."""
    fillers = [node(f"f{i}", type="group") for i in range(4)]
    assert parts_of(*GOOD, *fillers)["success"] == pytest.approx(0.5 / 0.95)

import pytest
from task_plans import ARCHIVE, CHANGELOG, FORMATS, GOOD, PAYMENT, TASK, graph, node

from skyrl_nat.environments.task_dag.coverage import cover, requirement_of
from skyrl_nat.environments.task_dag.payload import parse_hidden

HIDDEN = parse_hidden(TASK.hidden)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Compare the packaging formats", 0),
        ("PACKAGING: which format?", 0),
        ("one entry in the changelog", 1),
        ("Test the payment pages, all of them", 2),
        ("Compare the formats", None),
        ("Test the payment page and publish the download archive", None),
        ("packaging format changelog entries payment page download archive", None),
        ("", None),
    ],
)
def test_a_description_names_one_requirement_or_none(text: str, place: int | None) -> None:
    assert requirement_of(text, HIDDEN.requirements) == place


def test_the_reference_covers_everything_in_order() -> None:
    found = cover(graph(*GOOD), HIDDEN)
    assert found.met == ((1,), (2,), (3,), (4,))
    assert (found.share, found.order_share, found.too_early) == (1.0, 1.0, frozenset())


def test_a_task_of_another_type_counts_half_and_keeps_no_order() -> None:
    wrong = node("formats", type="review", description=FORMATS.description)
    found = cover(graph(wrong, CHANGELOG, PAYMENT, ARCHIVE), HIDDEN)
    assert found.share == (0.5 + 1 + 1 + 1) / 4
    assert found.kept == (False, True)
    assert found.too_early == {2}


def test_order_holds_through_other_tasks_and_groups() -> None:
    between = node("between", "formats")
    group = node("late", "between", type="group")
    inner = node("changelog", parent="late", description=CHANGELOG.description)
    found = cover(graph(FORMATS, between, group, inner, PAYMENT, ARCHIVE), HIDDEN)
    assert found.kept == (True, True)


def test_every_task_that_meets_a_requirement_must_be_in_order() -> None:
    again = node("again", type="research", description="Compare packaging formats once more")
    found = cover(graph(FORMATS, again, CHANGELOG, PAYMENT, ARCHIVE), HIDDEN)
    assert found.kept == (False, True)
    assert found.too_early == {3}
    assert found.share == 1.0

import unicodedata

import pytest

from skyrl_nat.environments.task_dag.ids import id_problem, look_of, normal_id


@pytest.mark.parametrize("name", ["a", "TASK-3", "build_v1.2", "É", "計画"])
def test_letters_digits_and_three_signs_make_an_id(name: str) -> None:
    assert id_problem(name) == ""


@pytest.mark.parametrize(
    "name", ["", " ", "a ", " a", "a b", "a\n", "<|im_end|>", "x" * 41, "a/b", "a\u200b", "\ud800"]
)
def test_everything_else_is_refused_with_the_rule(name: str) -> None:
    assert id_problem(name).startswith("an id must have 1 to 40 letters")


def test_composed_and_decomposed_letters_are_one_id() -> None:
    """DG-07."""
    composed, decomposed = "\u00c9", "E\u0301"
    assert composed != decomposed
    assert normal_id(decomposed) == composed == unicodedata.normalize("NFC", decomposed)


@pytest.mark.parametrize(
    ("first", "second"), [("TASK-3", "TASK-03"), ("a ", "a"), ("É", "é"), ("\uff49\uff44", "id"), ("a_b", "a-b")]
)
def test_ids_that_look_alike_are_told(first: str, second: str) -> None:
    """DG-07."""
    assert look_of(first) == look_of(second)


@pytest.mark.parametrize(("first", "second"), [("TASK-3", "TASK-30"), ("v10", "v1"), ("a", "b"), ("0", "1")])
def test_other_ids_do_not_look_alike(first: str, second: str) -> None:
    assert look_of(first) != look_of(second)

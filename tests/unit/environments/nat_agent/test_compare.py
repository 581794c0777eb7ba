import pytest

from skyrl_nat.environments.nat_agent.compare import is_same, share_above_constant


@pytest.mark.parametrize(
    ("expected", "found", "verdict"),
    [
        (1, 1, True),
        (1, True, False),
        (True, 1, False),
        (1, 1.0, False),
        (1.0, 1, False),
        (0.1 + 0.2, 0.3, True),
        (1.0, 1.00001, False),
        (float("nan"), float("nan"), False),
        (float("inf"), float("inf"), False),
        ("1", 1, False),
        (None, None, True),
        (None, False, False),
        ([1, 2.0], [1, 2.0], True),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ({"a": [True]}, {"a": [True]}, True),
        ({"a": [True]}, {"a": [1]}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (3, {"$foreign": "Any"}, False),
    ],
)
def test_equality_needs_exact_types_sb_07(expected: object, found: object, verdict: bool) -> None:
    assert is_same(expected, found) is verdict


def test_always_equal_object_is_never_asked() -> None:
    class Any(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    assert not is_same(3, Any(7))


def test_share_is_measured_from_the_best_constant() -> None:
    expected = [True, True, True, False]
    assert share_above_constant([True, True, True, False], expected) == 0.0  # what "always True" gets
    assert share_above_constant([True] * 4, expected) == 1.0
    assert share_above_constant([True, False, False, False], expected) == 0.0
    assert share_above_constant([True, True, False, False], [1, 2, 3, 4]) == pytest.approx((0.5 - 0.25) / 0.75)


def test_share_with_one_distinct_output_is_the_plain_share() -> None:
    assert share_above_constant([True, False], ["x", "x"]) == 0.5


def test_true_and_one_are_different_outputs() -> None:
    assert share_above_constant([True, True], [True, 1]) == 1.0
    assert share_above_constant([True, False], [True, 1]) == 0.0

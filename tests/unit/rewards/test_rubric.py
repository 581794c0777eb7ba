import pytest

from skyrl_nat.errors import ConfigError
from skyrl_nat.rewards.rubric import Rubric, make_rubric


def test_total_is_the_weighted_sum_over_the_sum_of_weights() -> None:
    """Row 20: the total, which is what is logged and trained, holds the weights."""
    result = Rubric(weights={"a": 3.0, "b": 1.0}).score({"a": 0.5, "b": 1.0})
    assert result.total == pytest.approx((3 * 0.5 + 1) / 4)
    assert result.parts == {"a": 0.5, "b": 1.0}
    assert not result.is_success


def test_parts_that_a_task_has_not_leave_both_sums() -> None:
    rubric = Rubric(weights={"a": 3.0, "b": 1.0})
    assert rubric.score({"a": 0.5}).total == 0.5
    assert rubric.score({"a": 1.0}).is_success


def test_parts_without_weight_are_shown_and_decide_nothing() -> None:
    rubric = Rubric(weights={"a": 1.0, "shaping": 0.0})
    result = rubric.score({"a": 1.0, "shaping": 0.25})
    assert (result.total, result.is_success) == (1.0, True)
    assert result.parts == {"a": 1.0, "shaping": 0.25}
    with pytest.raises(ValueError, match="must not all be 0"):
        rubric.score({"shaping": 1.0})


def test_findings_and_suspicions_are_handed_on_and_change_no_number() -> None:
    rubric = Rubric(weights={"a": 1.0})
    result = rubric.score({"a": 0.5}, findings=["f"], suspicions=("s",))
    assert (result.findings, result.suspicions) == (["f"], ["s"])
    assert result.total == rubric.score({"a": 0.5}).total == 0.5


def test_scaling_all_weights_changes_nothing() -> None:
    parts = {"a": 0.25, "b": 0.75}
    one = Rubric(weights={"a": 1.0, "b": 2.0}).score(parts).total
    assert Rubric(weights={"a": 10.0, "b": 20.0}).score(parts).total == pytest.approx(one)


@pytest.mark.parametrize("parts", [{"a": 1.5}, {"a": -0.1}, {"a": float("nan")}, {"c": 1.0}])
def test_unknown_or_unbounded_parts_are_refused(parts: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must have a weight"):
        Rubric(weights={"a": 1.0}).score(parts)


def test_override_of_an_unknown_part_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="typo"):
        make_rubric({"a": 1.0}, {"typo": 1.0})
    with pytest.raises(ConfigError, match="above 0"):
        make_rubric({"a": 1.0}, {"a": 0.0})
    assert make_rubric({"a": 1.0, "b": 1.0}, {"b": 0.0}).weights == {"a": 1.0, "b": 0.0}

"""What is asked of a data set, before anything is made."""

from pathlib import Path

import pytest

from skyrl_nat.data.prepare import PrepareOptions
from skyrl_nat.data.synthesis.library import HoldOut
from skyrl_nat.errors import ConfigError


@pytest.mark.parametrize(
    ("hold_out", "others"), [("families", {}), ("variants", {}), ("both", {"other_families": 105})]
)
def test_a_tenth_is_held_out_and_other_families_come_on_top(hold_out: str, others: dict[str, int]) -> None:
    options = PrepareOptions(output_dir=Path("x"), num_samples=1050, hold_out=HoldOut(hold_out))
    assert options.counts == {"train": 945, "validation": 105} | others


def test_a_function_is_asked_for_once_or_more() -> None:
    with pytest.raises(ConfigError, match="tasks_per_function must be >= 1, got 0"):
        PrepareOptions(output_dir=Path("x"), tasks_per_function=0)
    with pytest.raises(ConfigError, match="tasks_per_function must be 1 with a planner, got 2"):
        PrepareOptions(output_dir=Path("x"), has_planner=True, tasks_per_function=2)


def test_a_planner_has_no_variants() -> None:
    with pytest.raises(ConfigError, match="hold_out must be families with a planner, got variants"):
        PrepareOptions(output_dir=Path("x"), has_planner=True, hold_out=HoldOut.variants)

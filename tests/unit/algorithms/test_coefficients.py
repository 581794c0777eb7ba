"""Coefficients that follow a target."""

import pytest

from skyrl_nat.algorithms.coefficients import adapted_entropy_coefficient, adapted_kl_coefficient


@pytest.mark.parametrize(
    ("measured", "expected"), [(0.06, 0.1), (0.066, 0.1 * 1.01), (0.6, 0.1 * 1.02), (0.0, 0.1 * 0.98)]
)
def test_kl_coefficient_moves_by_the_error_cut_at_a_fifth(measured: float, expected: float) -> None:
    """100 of 1000 rollouts: an error of 10 % moves by 1 %, one of 900 % by 2 %."""
    found = adapted_kl_coefficient(0.1, measured=measured, target=0.06, num_rollouts=100, horizon=1000)
    assert found == pytest.approx(expected)


def test_entropy_coefficient_rises_below_the_target_and_stays_in_its_range() -> None:
    def step(coefficient: float, measured: float) -> float:
        return adapted_entropy_coefficient(coefficient, measured=measured, target=0.2, step_size=0.004, largest=0.01)

    assert step(0.001, 0.1) == pytest.approx(0.005)
    assert step(0.005, 0.3) == pytest.approx(0.001)
    assert step(0.001, 0.3) == 0.0
    assert step(0.009, 0.1) == 0.01

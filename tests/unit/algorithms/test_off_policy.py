"""Corrections for the gap between engine and trainer."""

import math

import pytest
import torch
from torch import Tensor

from skyrl_nat.algorithms.off_policy import CORRECTIONS, CorrectionBounds, outlier_mask

ALL = torch.ones(3, dtype=torch.bool)
ONE = torch.tensor([0, 3])


def correct(name: str, ratios: list[float], mask: Tensor = ALL, borders: Tensor = ONE, **bounds: float) -> list[float]:
    """Return the weights of tokens given by their trainer / rollout ratios."""
    log_ratio = torch.where(mask, torch.tensor(ratios, dtype=torch.float64).log(), 0.0)
    return CORRECTIONS[name](log_ratio, mask, borders, CorrectionBounds(**bounds)).tolist()


def test_truncated_weight_is_trainer_over_rollout_and_capped() -> None:
    """Row 31: a ratio of 3 with cap 2 gives 2; a ratio of one third stays."""
    assert correct("token_tis", [3.0, 1 / 3, 1.0], low=0.0, high=2.0) == pytest.approx([2.0, 1 / 3, 1.0])


def test_icepop_leaves_out_on_both_sides_and_cuts_nothing() -> None:
    """Row 31: bounds 0.5 and 5: 0.4 is left out, 3 stays 3, 6 is left out."""
    assert correct("icepop", [0.4, 3.0, 6.0], low=0.5, high=5.0) == pytest.approx([0.0, 3.0, 0.0])


def test_sequence_weight_is_the_product_of_its_tokens_ratios() -> None:
    """Row 32: sequences of (1.2, 1.5) and (2, 2), cap 3; the masked token in between counts nowhere."""
    mask = torch.tensor([True, False, True, True, True])
    found = correct("sequence_tis", [1.2, 9.0, 1.5, 2.0, 2.0], mask, torch.tensor([0, 3, 5]), low=0.0, high=3.0)
    assert found == pytest.approx([1.8, 1.8, 1.8, 3.0, 3.0])


def test_geometric_mask_does_not_depend_on_length_and_the_product_does() -> None:
    """Row 32: 100 tokens of +0.01 each have the product 2.718 and the geometric mean 1.010."""
    ratios = [math.exp(0.01)] * 100
    mask, borders = torch.ones(100, dtype=torch.bool), torch.tensor([0, 100])
    assert correct("geometric_mask", ratios, mask, borders, low=0.9, high=1.02) == [1.0] * 100
    assert correct("geometric_mask", ratios, mask, borders, low=0.9, high=1.005) == [0.0] * 100
    assert correct("product_mask", ratios, mask, borders, low=0.5, high=2.0) == [0.0] * 100
    assert correct("product_mask", ratios, mask, borders, low=0.5, high=3.0) == pytest.approx([math.e] * 100)


def test_one_outlier_takes_its_whole_sequence_with_it() -> None:
    mask, borders = torch.ones(5, dtype=torch.bool), torch.tensor([0, 2, 5])
    for outlier in (1e-5, 1e5):
        log_ratio = torch.tensor([1.0, 2.0, 1.0, outlier, 1.0]).log()
        assert outlier_mask(log_ratio, mask, borders, lowest_ratio=1e-4).tolist() == [1, 1, 0, 0, 0]
        assert outlier_mask(log_ratio, mask, borders, lowest_ratio=0.0).tolist() == [1] * 5
        assert outlier_mask(log_ratio, mask, borders, lowest_ratio=1e-6).tolist() == [1] * 5


@pytest.mark.parametrize("name", list(CORRECTIONS))
def test_equal_log_probs_weigh_one(name: str) -> None:
    assert correct(name, [1.0, 1.0, 1.0], low=0.5, high=2.0) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", list(CORRECTIONS))
def test_a_diverged_sequence_gives_a_number(name: str) -> None:
    log_ratio = torch.full((3,), 400.0)
    for sign in (1, -1):
        weights = CORRECTIONS[name](sign * log_ratio, ALL, ONE, CorrectionBounds(0.5, 2.0))
        assert bool(((weights >= 0) & (weights <= 2.0)).all())

"""Reductions: one denominator for the whole step."""

import pytest

from skyrl_nat.algorithms.reduction import REDUCTIONS, ReductionWeights


def reduced(name: str, losses: list[list[float]], groups: list[str] | None = None, divisor: int = 10) -> float:
    """Return the loss of samples given as lists of token losses."""
    weights: ReductionWeights = REDUCTIONS[name](
        [len(tokens) for tokens in losses],
        [str(i) for i in range(len(losses))],
        groups or [str(i) for i in range(len(losses))],
        max_tokens_divisor=divisor,
    )
    total = sum(w * sum(tokens) for w, tokens in zip(weights.token_weights, losses, strict=True))
    return total / weights.denominator


def test_token_mean_is_over_all_tokens_of_the_step() -> None:
    """Rows 1 and 2, GM-05: 10 tokens of 1 and 6 of 3 give 1.75; 1 of 9 and 9 of 1 give 1.8."""
    assert reduced("token_mean", [[1.0] * 10, [3.0] * 6]) == pytest.approx(1.75)
    assert reduced("token_mean", [[9.0], [1.0] * 9]) == pytest.approx(1.8)
    assert reduced("token_mean", [[2.0] * 100, [0.5] * 900]) == pytest.approx(0.65)


def test_a_sample_without_loss_tokens_is_in_no_denominator() -> None:
    """Row 6, GM-07: two sequences of loss 1, one masked out, give 1."""
    for name in ("token_mean", "sequence_mean", "prompt_mean"):
        assert reduced(name, [[1.0] * 5, []]) == pytest.approx(1.0), name
    assert reduced("sequence_mean_token_sum", [[1.0] * 5, []]) == pytest.approx(0.5)


def test_sequence_mean_counts_every_sequence_once() -> None:
    """Row 10: lengths 2 and 8."""
    assert reduced("sequence_mean", [[1.0] * 2, [0.0] * 8]) == pytest.approx(0.5)
    assert reduced("sequence_mean", [[0.0] * 2, [1.0] * 8]) == pytest.approx(0.5)


def test_sequence_mean_token_sum_divides_by_a_constant_only() -> None:
    """Row 7: a longer sequence beside it changes the number of sequences, not the divisor."""
    alone = reduced("sequence_mean_token_sum", [[1.0] * 4], divisor=16)
    beside = reduced("sequence_mean_token_sum", [[1.0] * 4, [0.0] * 500], divisor=16)
    assert alone == pytest.approx(4 / 16)
    assert beside == pytest.approx(4 / 16 / 2)


def test_prompt_mean_counts_every_group_once_in_any_order() -> None:
    losses = [[1.0] * 3, [5.0] * 2, [2.0]]
    # Group a holds 3 tokens of 1 and 1 token of 2, group b 2 tokens of 5.
    assert reduced("prompt_mean", losses, ["a", "b", "a"]) == pytest.approx((5 / 4 + 5) / 2)
    shuffled = [losses[1], losses[2], losses[0]]
    assert reduced("prompt_mean", shuffled, ["b", "a", "a"]) == pytest.approx((5 / 4 + 5) / 2)


def test_nothing_to_train_on_gives_a_denominator_of_zero() -> None:
    """GM-07b."""
    for name, function in REDUCTIONS.items():
        assert function([0, 0], ["a", "b"], ["a", "b"], max_tokens_divisor=4) == ([0.0, 0.0], 0.0), name


def test_samples_cut_from_one_rollout_count_once() -> None:
    """Row 11, GM-13: three segments of one rollout weigh what the whole would."""
    whole = {"rollouts": ["a", "b"], "losses": [[1.0] * 6, [4.0] * 2]}
    cut = {"rollouts": ["a", "b", "a", "a"], "losses": [[1.0] * 2, [4.0] * 2, [1.0] * 3, [1.0]]}
    for name, function in REDUCTIONS.items():
        found = []
        for case in (whole, cut):
            counts = [len(tokens) for tokens in case["losses"]]
            weights = function(counts, case["rollouts"], case["rollouts"], max_tokens_divisor=10)
            total = sum(w * sum(tokens) for w, tokens in zip(weights.token_weights, case["losses"], strict=True))
            found.append((total / weights.denominator, weights.denominator))
        assert found[0] == pytest.approx(found[1]), name

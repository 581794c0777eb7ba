"""FLOPs counted by hand."""

import pytest

from skyrl_nat.monitoring.flops import ModelShape, mfu

TINY = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 100,
}
QWEN_1_5B = {
    "hidden_size": 1536,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "intermediate_size": 8960,
    "vocab_size": 151936,
}


def test_parameters_of_a_tiny_model_are_counted_by_hand() -> None:
    # Per layer: q and o 8 x 8, k and v 8 x 4, three of 8 x 16; head 100 x 8.
    shape = ModelShape.of_config(TINY)
    assert shape.num_matmul_parameters == 2 * (2 * 64 + 2 * 32 + 3 * 128) + 800 == 1952
    assert (shape.num_layers, shape.attention_width) == (2, 8)


def test_a_head_size_of_its_own_counts() -> None:
    assert ModelShape.of_config({**TINY, "head_dim": 3}).attention_width == 12


def test_attention_grows_with_the_square_of_each_sequence_alone() -> None:
    shape = ModelShape.of_config(TINY)
    one, two = shape.forward_flops([10]), shape.forward_flops([5, 5])
    assert one == 2 * 1952 * 10 + 2 * 2 * 8 * 100
    assert one - two == 2 * 2 * 8 * (100 - 50)
    assert shape.training_flops([10]) == 3 * one


def test_qwen_of_1_5b_has_its_parameters() -> None:
    # 1.54e9 in all, tied head counted once, without biases and norms.
    assert ModelShape.of_config(QWEN_1_5B).num_matmul_parameters == pytest.approx(1.5436e9, rel=1e-3)


def test_mfu_is_work_over_what_all_gpus_could_have_done() -> None:
    assert mfu(989e12, 2.0, num_gpus=2) == 0.25

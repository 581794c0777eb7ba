"""FLOPs counted by hand."""

import json
from pathlib import Path

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
    assert mfu(989e12, 2.0 * 2, peak_flops=989e12) == 0.25


def test_decoding_reads_weights_once_a_step_and_the_cache_of_every_token_before() -> None:
    shape = ModelShape.of_config(TINY)
    # Keys and values of 2 layers, 2 heads of 2: 16 numbers a token.
    assert shape.decode_bytes(num_steps=3, num_context_tokens=70, bytes_per_number=2) == 2 * (3 * 1952 + 16 * 70)


@pytest.mark.parametrize(
    ("changes", "is_known"),
    [
        ({"model_type": "qwen2"}, True),
        ({"model_type": "qwen2", "use_sliding_window": True}, False),
        ({"model_type": "qwen3_moe"}, False),
        ({}, False),
    ],
)
def test_only_models_whose_layers_are_all_alike_have_a_shape(
    tmp_path: Path, changes: dict[str, object], is_known: bool
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**TINY, **changes}))
    assert (ModelShape.of_folder(tmp_path) is not None) == is_known

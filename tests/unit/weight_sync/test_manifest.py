from pathlib import Path

import torch
from safetensors.torch import save_file

from skyrl_nat.weight_sync.base import TensorSpec
from skyrl_nat.weight_sync.manifest import (
    describe_problems,
    find_payload_problems,
    find_problems,
    read_expected_shapes,
    spec_of,
)

EXPECTED = {"a.weight": (2, 3), "b.weight": (4,)}


def spec(name: str, *shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, shape=shape, dtype=dtype)


def problems(*manifest: TensorSpec, is_tied: bool = False) -> list[str]:
    return find_problems(manifest, EXPECTED, dtype="float32", is_tied=is_tied)


def test_shapes_come_from_all_files_of_a_folder(tmp_path: Path) -> None:
    save_file({"a.weight": torch.zeros(2, 3)}, tmp_path / "model-1.safetensors", {"format": "pt"})
    save_file({"b.weight": torch.zeros(4)}, tmp_path / "model-2.safetensors")
    assert read_expected_shapes(tmp_path) == EXPECTED


def test_every_tensor_once_with_its_shape_is_no_problem_in_any_order() -> None:
    assert problems(spec("b.weight", 4), spec("a.weight", 2, 3)) == []


def test_missing_unknown_misshapen_and_repeated_tensors_are_all_named() -> None:
    """Row 57, WS-02: wrapper prefixes do not match, and nothing is skipped in silence."""
    found = problems(spec("a.weight", 3, 2), spec("a.weight", 2, 3), spec("_orig_mod.b.weight", 4))
    assert found == [
        "a.weight: shape (3, 2), not (2, 3)",
        "a.weight: sent twice",
        "_orig_mod.b.weight: unknown",
        "b.weight: missing",
    ]


def test_a_tied_head_may_be_sent_or_left_out_an_untied_one_may_not() -> None:
    whole = (spec("a.weight", 2, 3), spec("b.weight", 4))
    assert problems(*whole, spec("lm_head.weight", 9, 9), is_tied=True) == []
    assert problems(*whole, spec("lm_head.weight", 9, 9)) == ["lm_head.weight: unknown"]


def test_another_dtype_is_a_problem() -> None:
    found = problems(spec("a.weight", 2, 3, dtype="bfloat16"), spec("b.weight", 4))
    assert found == ["a.weight: dtype bfloat16, not float32"]


def test_a_payload_is_compared_with_its_manifest() -> None:
    manifest = [spec("a.weight", 2, 3), spec("b.weight", 4)]
    payload = {"a.weight": torch.zeros(2, 2), "c": torch.zeros(1)}
    assert find_payload_problems(manifest, payload) == [
        "a.weight: float32 (2, 2), announced as float32 (2, 3)",
        "b.weight: announced but not sent",
        "c: sent but not announced",
    ]
    good = {"a.weight": torch.zeros(2, 3), "b.weight": torch.zeros(4)}
    assert find_payload_problems([spec_of(n, t) for n, t in good.items()], good) == []


def test_a_long_list_is_cut_and_counted() -> None:
    message = describe_problems([f"t{i}: missing" for i in range(25)])
    assert "t9: missing and 15 more" in message
    assert "t10" not in message
    assert describe_problems([]) == ""

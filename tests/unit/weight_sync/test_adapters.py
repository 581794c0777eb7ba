"""Names and shapes of adapters on the wire, and the products that vLLM's workers add on CPUs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from skyrl_nat.config.model import LoraConfig
from skyrl_nat.errors import WeightSyncError
from skyrl_nat.weight_sync.adapters import adapter_shapes
from skyrl_nat.weight_sync.base import tensor_digest


def test_every_linear_layer_whose_path_ends_in_a_target_has_two_matrices() -> None:
    weights = {
        "model.layers.0.self_attn.q_proj.weight": (6, 4),
        "model.layers.0.self_attn.q_proj.bias": (6,),
        "model.layers.0.mlp.up_proj.weight": (8, 4),
        "model.layers.0.mlp.not_q_proj.weight": (8, 4),
        "model.norm.weight": (4,),
    }
    assert adapter_shapes(weights, LoraConfig(rank=2, targets=["q_proj", "mlp.up_proj"])) == {
        "model.layers.0.self_attn.q_proj.lora_A.weight": (2, 4),
        "model.layers.0.self_attn.q_proj.lora_B.weight": (6, 2),
        "model.layers.0.mlp.up_proj.lora_A.weight": (2, 4),
        "model.layers.0.mlp.up_proj.lora_B.weight": (8, 2),
    }


@pytest.fixture
def inside() -> Any:
    """Return the module of vLLM's workers."""
    pytest.importorskip("vllm")
    from skyrl_nat.weight_sync import vllm_adapters

    return vllm_adapters


def test_products_are_added_to_the_columns_of_their_slice(inside: Any) -> None:
    """x = [1, 2]: A x = 3 and 4; the slices get (3, 6) and 4 * 5 = 20, on top of what was there."""
    out = torch.tensor([[100.0, 200.0, 300.0]])
    downs = [torch.tensor([[[[1.0, 1.0]]]]), torch.tensor([[[[0.0, 2.0]]]])]
    ups = [torch.tensor([[[[1.0], [2.0]]]]), torch.tensor([[[[5.0]]]])]
    inside.PlainProducts().add_lora_linear(out, torch.tensor([[1.0, 2.0]]), downs, ups, 1.0, (2, 1), buffer=None)
    assert out.tolist() == [[103.0, 206.0, 320.0]]


class Manager(SimpleNamespace):
    """vLLM's manager with one fused layer of two parts and one plain layer."""

    def __init__(self) -> None:
        qkv = SimpleNamespace(
            lora_a_stacked=[torch.full((1, 1, 8, 4), float(part)) for part in range(2)],
            lora_b_stacked=[torch.full((1, 1, 6, 8), 10.0 + part) for part in range(2)],
        )
        super().__init__(
            modules={"a.qk": qkv, "a.o": SimpleNamespace()},
            packed_modules={"a.qk": ["a.q", "a.k"]},
            lora_index_to_id=[1],
            calls=[],
        )

    def remove_adapter(self, number: int) -> None:
        self.calls.append(f"remove {number}")

    def add_adapter(self, adapter: Any) -> None:
        self.calls.append(f"add {adapter.id} of rank {adapter.rank}: {sorted(adapter.loras)}")

    def activate_adapter(self, number: int) -> None:
        self.calls.append(f"activate {number}")


def matrices(*paths: str) -> dict[str, Tensor]:
    return {f"{path}.lora_{part}.weight": torch.ones(2, 2) for path in paths for part in "AB"}


def test_an_adapter_takes_the_place_of_the_last_one(inside: Any) -> None:
    manager = Manager()
    inside.replace_adapter(manager, matrices("a.k", "a.o"))
    assert manager.calls == ["remove 1", "add 1 of rank 2: ['a.k', 'a.o']", "activate 1"]


def test_a_layer_that_vllm_has_no_adapter_for_is_refused_before_anything_changes(inside: Any) -> None:
    """vLLM itself would leave it out and say nothing."""
    manager = Manager()
    with pytest.raises(WeightSyncError, match=r"found 1 others: a\.v\. Set engine\.adapters=merged"):
        inside.replace_adapter(manager, matrices("a.q", "a.v"))
    assert manager.calls == []


def test_live_matrices_are_cut_out_of_their_part_of_a_fused_layer(inside: Any) -> None:
    manager = Manager()
    live = dict(inside.read_live_adapter(manager, {"a.k.lora_A.weight": [3, 4], "a.q.lora_B.weight": [6, 3]}))
    assert torch.equal(live["a.k.lora_A.weight"], torch.full((3, 4), 1.0))
    assert torch.equal(live["a.q.lora_B.weight"], torch.full((6, 3), 10.0))
    manager.lora_index_to_id = [None]
    with pytest.raises(WeightSyncError, match="must hold the adapter"):
        dict(inside.read_live_adapter(manager, {"a.k.lora_A.weight": [3, 4]}))


def test_digests_of_files_are_of_the_format_in_which_they_are_loaded(inside: Any, tmp_path: Path) -> None:
    weight = torch.tensor([1.0, 1.001])
    save_file({"w": weight, "other": weight.clone()}, tmp_path / "model.safetensors")
    found = inside.digests_of_files(tmp_path, {"w": [2]}, torch.bfloat16)
    assert found == {"w": tensor_digest(weight.bfloat16())}

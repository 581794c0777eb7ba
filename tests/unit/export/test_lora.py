"""Adapters belong to their model, are added with their own scale, and only once."""

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tiny_model import make_tiny_model
from transformers import AutoModelForCausalLM

from skyrl_nat.checkpoint.adapters import merged_adapter, merged_adapters
from skyrl_nat.errors import ConfigError, ExportError
from skyrl_nat.export.lora import WEIGHTS, check_adapter, scale

TOKENS = torch.arange(12).unsqueeze(0)


def make_adapter(folder: Path, base: Path, *, is_rank_stabilised: bool = False) -> torch.nn.Module:
    """Write an adapter of rank 8 and alpha 16 whose matrices are not zero, and return the adapted model."""
    model = AutoModelForCausalLM.from_pretrained(base)
    targets = ["q_proj", "v_proj", "down_proj"]
    settings = LoraConfig(r=8, lora_alpha=16, target_modules=targets, use_rslora=is_rank_stabilised)
    adapted = get_peft_model(model, settings)
    torch.manual_seed(0)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    adapted.save_pretrained(folder)
    return adapted


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "base")


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(TOKENS).logits


@pytest.mark.parametrize(("is_rank_stabilised", "factor"), [(False, 2.0), (True, 16 / 8**0.5)])
def test_the_merged_model_is_the_adapted_one_with_the_adapter_s_own_scale(
    base: Path, tmp_path: Path, is_rank_stabilised: bool, factor: float
):
    """EX-04."""
    adapted = make_adapter(tmp_path / "adapter", base, is_rank_stabilised=is_rank_stabilised)
    assert scale(tmp_path / "adapter") == pytest.approx(factor)
    merged = merged_adapter(tmp_path / "adapter", base, tmp_path / "merged")
    difference = (logits(AutoModelForCausalLM.from_pretrained(merged)) - logits(adapted)).abs().max()
    assert float(difference) < 1e-4
    matrices = load_file(tmp_path / "adapter" / WEIGHTS)
    name = "model.layers.0.self_attn.q_proj"
    product = matrices[f"base_model.model.{name}.lora_B.weight"] @ matrices[f"base_model.model.{name}.lora_A.weight"]
    summed, start = (load_file(folder / "model.safetensors") for folder in (merged, base))
    # Tied weights lie in the file under the name that engines look for.
    assert summed.keys() == start.keys() and "lm_head.weight" not in summed
    after, before = summed[f"{name}.weight"], start[f"{name}.weight"]
    assert torch.allclose(after - before, factor * product, atol=1e-5)


def test_an_adapter_is_merged_into_a_model_once(base: Path, tmp_path: Path):
    """EX-04."""
    make_adapter(tmp_path / "adapter", base)
    merged = merged_adapter(tmp_path / "adapter", base, tmp_path / "merged")
    assert len(merged_adapters(merged)) == 1 and merged_adapters(base) == []
    with pytest.raises(ConfigError, match="must be the model without the adapter"):
        merged_adapter(tmp_path / "adapter", merged, tmp_path / "twice")
    assert not (tmp_path / "twice").exists()


def test_nothing_is_merged_into_quantised_weights(base: Path, tmp_path: Path):
    """EX-04."""
    make_adapter(tmp_path / "adapter", base)
    config = json.loads((base / "config.json").read_text())
    four_bit = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (base / "config.json").write_text(json.dumps(config | {"quantization_config": four_bit}))
    with pytest.raises(ConfigError, match="must be the full-precision model"):
        merged_adapter(tmp_path / "adapter", base, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def changed(adapter: Path, change) -> None:
    tensors = load_file(adapter / WEIGHTS)
    save_file(change(tensors), adapter / WEIGHTS)


def test_an_adapter_that_fits_its_model_passes(base: Path, tmp_path: Path):
    make_adapter(tmp_path / "adapter", base)
    check_adapter(tmp_path / "adapter", base)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda t: {f"extra.{name}": tensor for name, tensor in t.items()}, "belongs to no weight of the model"),
        (lambda t: {n.replace("base_model.model.", "base_model."): w for n, w in t.items()}, "belongs to no weight"),
        (lambda t: {n: w for n, w in t.items() if "q_proj.lora_B" not in n}, "q_proj.weight has one matrix of two"),
        (lambda t: {n: w[:, :4].contiguous() for n, w in t.items()}, "has the shape"),
        (lambda t: {n: torch.full_like(w, torch.nan) for n, w in t.items()}, "numbers that are not finite"),
        (lambda t: {}, "holds no matrices"),
    ],
)
def test_tensors_that_an_engine_would_leave_out_in_silence_are_refused(base: Path, tmp_path: Path, change, fault: str):
    """EX-08, DP-01."""
    make_adapter(tmp_path / "adapter", base)
    changed(tmp_path / "adapter", change)
    with pytest.raises(ExportError, match=fault):
        check_adapter(tmp_path / "adapter", base)

"""An adapter that peft saved, and the model it was trained on, are one model."""

import re

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_model import make_tiny_model
from transformers import AutoModelForCausalLM

from skyrl_nat.checkpoint.adapters import is_adapter, merged_adapter
from skyrl_nat.checkpoint.pretrained import check_model_folder
from skyrl_nat.errors import ConfigError


@pytest.fixture
def folders(tmp_path):
    """A tiny model, and an adapter of it whose two matrices are not zero."""
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    make_tiny_model(base, hidden_size=64)
    model = AutoModelForCausalLM.from_pretrained(base)
    wrapped = get_peft_model(model, LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"]))
    torch.manual_seed(0)
    for name, parameter in wrapped.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    wrapped.save_pretrained(adapter)
    return base, adapter, wrapped


def test_the_merged_model_is_the_adapted_one(folders, tmp_path):
    base, adapter, wrapped = folders
    assert is_adapter(adapter) and not is_adapter(base)
    merged = merged_adapter(adapter, base, tmp_path / "merged")
    check_model_folder(merged)
    tokens = torch.arange(10).unsqueeze(0)
    with torch.no_grad():
        expected = wrapped(tokens).logits
        found = AutoModelForCausalLM.from_pretrained(merged)(tokens).logits
        plain = AutoModelForCausalLM.from_pretrained(base)(tokens).logits
    assert torch.allclose(found, expected, atol=1e-5)
    assert not torch.allclose(found, plain, atol=1e-3)


def test_an_adapter_of_another_model_is_refused_by_name(folders, tmp_path):
    base, adapter, _ = folders
    make_tiny_model(tmp_path / "other", hidden_size=32)
    with pytest.raises(ConfigError, match=rf"must be the model .* trained on \({re.escape(str(base))}\), got .*other"):
        merged_adapter(adapter, tmp_path / "other", tmp_path / "merged")

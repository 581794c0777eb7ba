"""The residual stream in fp32: what it changes in bf16, and that it changes nothing else."""

from pathlib import Path

import pytest
import torch
from policy_ranks import make_grid, make_samples, make_worker
from tiny_model import TINIEST, make_tiny_model
from torch import Tensor
from transformers import GemmaConfig, GemmaForCausalLM, LlamaForCausalLM

from skyrl_nat.config.model import Dtype, ModelConfig
from skyrl_nat.errors import ConfigError
from skyrl_nat.workers.model import build_packed_model
from skyrl_nat.workers.policy import PolicyWorker

IN_BF16 = {"compute_dtype": Dtype.bfloat16, "fp32_head": True}
FORMS = {
    "whole": {},
    "checkpointed": {"activation_checkpointing": True},
    "compute in the master format": {"dtype": Dtype.bfloat16},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model deep enough for its rounding to add up."""
    path = make_tiny_model(tmp_path_factory.mktemp("model"), hidden_size=64, num_layers=16)
    # Weights that bf16 holds exactly: only what is computed is rounded.
    LlamaForCausalLM.from_pretrained(path, dtype=torch.bfloat16).save_pretrained(path)
    return path


def logprobs(worker: PolicyWorker) -> Tensor:
    (row,), _ = make_grid(make_samples())
    return torch.cat(worker.compute_logprobs(row))


def test_own_rounding_falls(folder: Path) -> None:
    exact = logprobs(make_worker(folder))
    plain = logprobs(make_worker(folder, model=IN_BF16))
    wide = logprobs(make_worker(folder, model=IN_BF16 | {"fp32_residual": True}))
    assert 0 < (wide - exact).abs().mean() < 0.85 * (plain - exact).abs().mean()


@pytest.mark.parametrize("form", FORMS)
def test_sums_are_fp32_and_products_are_not(folder: Path, form: str) -> None:
    worker = make_worker(folder, model=IN_BF16 | FORMS[form] | {"fp32_residual": True})
    layers = worker.module.causal_lm.model.layers
    found: dict[str, set[torch.dtype]] = {"stream": set(), "product": set()}
    for layer in layers:
        layer.register_forward_pre_hook(lambda _, given: found["stream"].add(given[0].dtype))
        for linear in (layer.self_attn.q_proj, layer.self_attn.o_proj, layer.mlp.down_proj):
            linear.register_forward_hook(lambda _, given, __: found["product"].add(given[0].dtype))
    (row,), constants = make_grid(make_samples())
    before = worker.parameter_digest()
    metrics = worker.train(row, constants)
    assert found == {"stream": {torch.float32}, "product": {torch.bfloat16}}
    assert metrics["loss/grad_norm"] > 0
    assert worker.parameter_digest() != before


def test_in_fp32_no_bit_changes(folder: Path) -> None:
    workers = [make_worker(folder, model={"fp32_residual": is_wide}) for is_wide in (False, True)]
    assert torch.equal(*map(logprobs, workers))
    (row,), constants = make_grid(make_samples())
    for worker in workers:
        worker.train(row, constants)
    assert workers[0].parameter_digest() == workers[1].parameter_digest()


def test_a_model_with_other_norms_is_refused(tmp_path: Path) -> None:
    config = GemmaConfig(**TINIEST, num_key_value_heads=1, head_dim=8)
    GemmaForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"model\.fp32_residual needs a decoder .*Found GemmaRMSNorm"):
        build_packed_model(tmp_path, ModelConfig(fp32_residual=True), temperature=1.0, is_trainable=True)

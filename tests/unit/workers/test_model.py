"""Refusals of models that would train with silently wrong numbers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from policy_ranks import make_grid, make_samples, make_worker
from tiny_model import TINIEST, make_tiny_model
from torch.autograd.graph import saved_tensors_hooks
from transformers import CohereConfig, CohereForCausalLM

from skyrl_nat.config.model import Dtype, ModelConfig
from skyrl_nat.errors import ConfigError
from skyrl_nat.workers import process_group
from skyrl_nat.workers.model import build_packed_model, checkpoint_parameters, empty_causal_lm, load_weights


def test_models_that_scale_their_logits_are_refused(tmp_path: Path) -> None:
    config = CohereConfig(**TINIEST, logit_scale=0.0625)
    CohereForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"logit_scale=0\.0625"):
        empty_causal_lm(tmp_path, ModelConfig())


def test_names_are_those_of_the_checkpoint_and_a_frozen_model_has_no_gradients(
    tmp_path: Path,
) -> None:
    folder = make_tiny_model(tmp_path / "m")
    module = build_packed_model(folder, ModelConfig(), temperature=1.0, is_trainable=False)
    names = [name for name, _ in checkpoint_parameters(module)]
    assert names[0] == "model.embed_tokens.weight"
    assert "lm_head.weight" not in names
    assert not any(p.requires_grad for p in module.parameters())


def test_dropout_of_the_checkpoint_is_switched_off(tmp_path: Path) -> None:
    """Row 66: a model that was pre-trained with dropout computes the same log-probs in every pass."""
    folder = make_tiny_model(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.5}))
    model = empty_causal_lm(folder, ModelConfig())
    assert model.config.attention_dropout == 0.0
    assert all(layer.self_attn.attention_dropout == 0.0 for layer in model.model.layers)


def test_dropout_is_off_by_whatever_name_a_model_calls_it(tmp_path: Path) -> None:
    """Row 66: Starcoder2 has a residual and an embedding dropout of its own; two passes give equal bits."""
    from transformers import Starcoder2Config, Starcoder2ForCausalLM

    config = Starcoder2Config(
        **TINIEST,
        num_key_value_heads=1,
        residual_dropout=0.3,
        embedding_dropout=0.3,
        sliding_window=None,
    )
    Starcoder2ForCausalLM(config).save_pretrained(tmp_path)
    model = build_packed_model(tmp_path, ModelConfig(), temperature=1.0, is_trainable=True)
    load_weights(model, tmp_path, torch.device("cpu"))
    (row,), _ = make_grid([replace(make_samples()[0], token_ids=[token % 32 for token in make_samples()[0].token_ids])])
    first, second = (model.score(row[0])[0] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("dtype", [Dtype.float32, Dtype.bfloat16])
def test_activations_in_host_memory_keep_every_bit_and_only_layer_inputs_move(
    tmp_path: Path, dtype: Dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head's weight stays where it is. Under FSDP2 formats differ, here."""
    folder = make_tiny_model(tmp_path / "m")
    (row,), constants = make_grid(make_samples(), budget=64)
    digests, saved = [], []

    def record(*, pin_memory: bool) -> saved_tensors_hooks:
        assert not pin_memory, "there is no GPU"
        return saved_tensors_hooks(lambda t: saved.append(tuple(t.shape)) or t.clone(), lambda t: t)

    monkeypatch.setattr("skyrl_nat.workers.model.save_on_cpu", record)
    for is_on in (False, True):
        settings = {"activation_checkpointing": True, "activation_offload": is_on, "compute_dtype": dtype}
        worker = make_worker(folder, model=settings)
        assert not saved
        worker.train(row, constants)
        worker.train(row, constants)
        digests.append(worker.parameter_digest())
    assert digests[0] == digests[1]
    num_hidden = sum(len(shape) == 3 and shape[-1] == 32 for shape in saved)
    assert num_hidden == 2 * len(row) * (2 + 3), "each layer's input, and three of the last norm"
    assert all(len(shape) < 2 or shape[0] == 1 for shape in saved), "no matrix of weights"
    process_group.destroy_group()


def test_activation_offload_needs_checkpointing() -> None:
    with pytest.raises(ConfigError, match=r"model\.activation_offload must be false without"):
        ModelConfig(activation_offload=True)

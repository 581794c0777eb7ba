"""Adapters beside frozen weights: what moves, what leaves, what the reference is."""

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from policy_ranks import RECOMPUTE, make_grid, make_samples, make_worker, run_ranks, train_steps
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from skyrl_nat.config.model import LoraConfig
from skyrl_nat.errors import CheckpointError, ConfigError
from skyrl_nat.weight_sync.adapters import DOWN, UP
from skyrl_nat.weight_sync.base import tensor_digest
from skyrl_nat.weight_sync.manifest import spec_of
from skyrl_nat.workers.policy import PolicyWorker

pytestmark = pytest.mark.usefixtures("leave_group")
LORA = {"lora": LoraConfig(rank=3, alpha=6.0, targets=["q_proj", "down_proj"])}


def make(folder: Path, **changes: object) -> PolicyWorker:
    return make_worker(folder, model={**LORA, **changes}, optimizer={"lr": 1e-2}, algorithm=RECOMPUTE)


def logprobs(worker: PolicyWorker, *, base: bool = False) -> Tensor:
    grid, _ = make_grid(make_samples())
    compute = worker.compute_base_logprobs if base else worker.compute_logprobs
    return torch.cat(compute(grid[0]))


def train(worker: PolicyWorker, steps: int) -> None:
    grid, constants = make_grid(make_samples())
    train_steps(worker, grid[0], constants, steps)


def test_adapters_change_nothing_at_the_start_and_the_base_never_moves(folder: Path) -> None:
    plain = logprobs(make_worker(folder))
    worker = make(folder)
    assert torch.equal(logprobs(worker), plain)
    train(worker, 3)
    assert (logprobs(worker) - plain).abs().max() > 1e-3
    assert torch.equal(logprobs(worker, base=True), plain)
    assert (logprobs(worker) - plain).abs().max() > 1e-3, "the adapters are on again"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_asking_the_base_first_changes_no_step(folder: Path, dtype: str) -> None:
    """The first forward pass of a run with a KL to the reference has no adapters."""
    alone, asked = (make_worker(folder, model={**LORA, "compute_dtype": dtype}) for _ in range(2))
    grid, constants = make_grid(make_samples())
    asked.compute_base_logprobs(grid[0])
    for worker in (alone, asked):
        metrics = [worker.train(grid[0], constants) for _ in range(2)]
        assert all(step["loss/grad_norm"] > 0 for step in metrics)
        assert all(p.requires_grad == (".lora_" in name) for name, p in worker.module.named_parameters())
    assert asked.parameter_digest() == alone.parameter_digest()


def test_what_leaves_is_the_frozen_weight_plus_alpha_by_rank_times_b_a(folder: Path) -> None:
    original = make_worker(folder).export_weights()
    worker = make(folder)
    train(worker, 2)
    merged = worker.export_weights()
    assert list(merged) == list(original) == [spec.name for spec in worker.weight_manifest()]
    parameters = dict(worker.module.named_parameters())
    num_changed = 0
    for name, weight in merged.items():
        path = f"causal_lm.{name.removesuffix('.weight')}"
        if f"{path}.lora_A.default.weight" in parameters:
            down, up = (parameters[f"{path}.lora_{part}.default.weight"].detach() for part in "AB")
            assert (down.shape[0], up.shape[1]) == (3, 3)
            assert torch.allclose(weight, original[name] + 6.0 / 3 * up @ down, atol=1e-7)
            assert not torch.equal(weight, original[name])
            num_changed += 1
        else:
            assert torch.equal(weight, original[name]), name
    assert num_changed == 2 * worker.module.causal_lm.config.num_hidden_layers


def test_two_ranks_train_the_adapters_of_one(folder: Path, tmp_path: Path) -> None:
    ranks = run_ranks(2, folder, tmp_path, lora_rank=4)
    assert ranks[0]["digest"] == ranks[1]["digest"]
    alone = make_worker(folder, model={"lora": LoraConfig(rank=4)}, algorithm=RECOMPUTE)
    train(alone, 2)
    for name, weight in alone.export_weights().items():
        assert torch.allclose(weight, ranks[0]["weights"][name], atol=1e-5), name


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_only_adapters_have_gradients_and_optimizer_state(folder: Path, is_checkpointed: bool) -> None:
    worker = make(folder, activation_checkpointing=is_checkpointed)
    train(worker, 1)
    moved = {name for name, p in worker.module.named_parameters() if p in worker.optimizer.state}
    assert moved
    assert all(".lora_" in name for name in moved)
    assert {name for name, p in worker.module.named_parameters() if p.requires_grad} == moved


def test_what_is_pushed_apart_adds_up_to_what_is_pushed_merged(folder: Path, tmp_path: Path) -> None:
    """W + (alpha / rank B) A is the merged weight; the folder that is exported stays merged."""
    worker = make(folder)
    worker.pushes_adapters = True
    train(worker, 2)
    merged = dict(worker.named_full_tensors())
    adapter = worker.export_weights()
    frozen = make_worker(folder).export_weights()
    assert [spec_of(name, tensor) for name, tensor in adapter.items()] == worker.weight_manifest()
    assert [path for path in adapter if path.endswith(DOWN)], "A and B of every target"
    for name, weight in merged.items():
        path = name.removesuffix(".weight")
        delta = adapter.pop(path + UP) @ adapter.pop(path + DOWN) if path + UP in adapter else 0
        assert torch.allclose(weight, frozen[name] + delta, atol=1e-6)
    assert not adapter
    worker.export_hf(tmp_path)
    assert load_file(tmp_path / "model.safetensors").keys() == frozen.keys()


def test_digests_of_an_engine_with_adapters_apart_are_of_frozen_weights_and_adapters(folder: Path) -> None:
    worker = make(folder)
    worker.pushes_adapters = True
    train(worker, 1)
    pushed = {name: tensor_digest(tensor.bfloat16()) for name, tensor in worker.export_weights("float32").items()}
    assert worker.checksums("bfloat16") == pushed | make_worker(folder).checksums("bfloat16")


def test_merged_folder_and_adapter_folder_both_give_the_policys_logprobs(folder: Path, tmp_path: Path) -> None:
    worker = make(folder)
    train(worker, 2)
    worker.export_hf(tmp_path)
    sample = make_samples()[0]
    ids = torch.tensor([sample.token_ids])
    [expected] = worker.compute_logprobs(make_grid([sample])[0][0])
    merged = AutoModelForCausalLM.from_pretrained(tmp_path)
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), tmp_path / "adapter")
    for model in (merged, adapted):
        with torch.inference_mode():
            logs = model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
        picked = logs[:-1].gather(1, ids[0, 1:, None])[:, 0]
        found = torch.cat([torch.zeros(1), picked]) * torch.tensor(sample.loss_mask)
        assert torch.allclose(found, expected, atol=1e-4)


def test_checkpoints_hold_the_adapters_alone_and_go_on_exactly(folder: Path, tmp_path: Path) -> None:
    whole = make(folder)
    train(whole, 2)
    whole.save(tmp_path / "checkpoint")
    train(whole, 1)
    resumed = make(folder)
    resumed.load(tmp_path / "checkpoint")
    train(resumed, 1)
    assert resumed.parameter_digest() == whole.parameter_digest()
    with pytest.raises(CheckpointError, match="must fit the model"):
        make_worker(folder).load(tmp_path / "checkpoint")


def test_targets_that_the_model_does_not_have_are_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.lora\.targets must name linear layers of LlamaForCausalLM, got wq"):
        make_worker(folder, model={"lora": LoraConfig(rank=2, targets=["wq"])})


@pytest.mark.parametrize("changes", [{"rank": -1}, {"alpha": 0.0}, {"targets": []}, {"targets": [""]}])
def test_impossible_settings_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"model\.lora\."):
        LoraConfig(**changes)  # pyright: ignore[reportArgumentType]

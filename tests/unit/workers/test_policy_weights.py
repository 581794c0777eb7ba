"""What leaves the policy worker: names, values and the weight channel."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from policy_ranks import (
    make_grid,
    make_samples,
    make_worker,
)
from safetensors import safe_open
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from skyrl_nat.errors import WeightSyncError, WorkerError
from skyrl_nat.weight_sync.base import tensor_digest
from skyrl_nat.workers.policy import PolicyWorker

pytestmark = pytest.mark.usefixtures("leave_group")


def test_exported_names_shapes_and_values_are_those_of_the_checkpoint(folder: Path, tmp_path: Path) -> None:
    """Row 57, from the trainer's side: nothing is missing, renamed or sent twice."""
    worker: PolicyWorker = make_worker(folder)
    (row,), _ = make_grid(make_samples())
    worker.compute_logprobs(row)
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        original = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    manifest = worker.weight_manifest("bfloat16")
    assert {s.name: s.shape for s in manifest} == {n: tuple(t.shape) for n, t in original.items()}
    assert {s.dtype for s in manifest} == {"bfloat16"}
    assert [s.name for s in manifest] == [name for name, _ in worker.named_full_tensors()]
    exported = worker.export_weights()
    assert all(torch.equal(exported[name], tensor) for name, tensor in original.items())
    digests = {name: tensor_digest(t.bfloat16()) for name, t in original.items()}
    assert worker.checksums("bfloat16") == digests
    worker.export_hf(tmp_path / "hf", "bfloat16")
    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    assert reloaded.dtype is torch.bfloat16
    weight = reloaded.model.layers[1].mlp.up_proj.weight
    assert torch.equal(weight, original["model.layers.1.mlp.up_proj.weight"].bfloat16())
    assert AutoTokenizer.from_pretrained(tmp_path / "hf").chat_template is not None


def test_exported_weights_do_not_change_with_later_steps(folder: Path) -> None:
    worker = make_worker(folder)
    exported = worker.export_weights()
    kept = {name: tensor.clone() for name, tensor in exported.items()}
    (row,), constants = make_grid(make_samples())
    worker.train(row, constants)
    assert all(torch.equal(exported[name], kept[name]) for name in kept)
    assert any(not torch.equal(t, kept[n]) for n, t in worker.export_weights().items())


def test_a_worker_refuses_use_before_build_and_says_who_it_is(folder: Path) -> None:
    worker = make_worker(folder)
    assert worker.ping()["rank"] == 0
    worker._module = None
    with pytest.raises(WorkerError, match="Call build first"):
        worker.compute_logprobs([])


def test_weights_are_sent_as_announced_and_only_through_an_open_channel(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 57: what is sent is the manifest, in order, in the announced format."""
    sent: list[tuple[str, tuple[int, ...], str]] = []

    class Recorder:
        port = 7

        def __init__(self, info: dict[str, Any]) -> None:
            assert info["address"] == "127.0.0.1"

        def join(self) -> None:
            sent.append(("joined", (), ""))

        def send(self, tensors: Iterator[tuple[str, Tensor]]) -> None:
            sent.extend((n, tuple(t.shape), str(t.dtype).removeprefix("torch.")) for n, t in tensors)

        def close(self) -> None:
            sent.append(("closed", (), ""))

    monkeypatch.setattr("skyrl_nat.weight_sync.channel.WeightSender", Recorder)
    worker = make_worker(folder)
    with pytest.raises(WeightSyncError, match="Call connect_weights first"):
        worker.send_weights()
    info = {"backend": "gloo", "dtype": "bfloat16", "world_size": 2}
    assert worker.listen_for_engines(info) == ("127.0.0.1", 7)
    worker.connect_weights()
    worker.send_weights()
    assert sent[0][0] == "joined"
    assert sent[1:] == [(s.name, s.shape, s.dtype) for s in worker.weight_manifest()]
    assert sent[1][2] == "bfloat16"
    assert worker.listen_for_engines({**info, "world_size": 1}) == ("127.0.0.1", 0)
    assert sent[-1][0] == "closed"
    with pytest.raises(WeightSyncError, match="Call connect_weights first"):
        worker.send_weights()

"""On GPUs: weights between processes, by CUDA IPC on one card and by NCCL between two."""

import multiprocessing
import uuid
from typing import Any

import pytest
import torch

from skyrl_nat.weight_sync.channel import WeightReceiver, WeightSender
from skyrl_nat.weight_sync.manifest import spec_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SHAPES = {"a": (3, 5), "b": (1000, 700), "c": (7,), "d": (2000, 1500)}


def weights(device: str, version: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(version)
    return {name: torch.randn(shape, generator=generator).to(device, torch.bfloat16) for name, shape in SHAPES.items()}


def receive(info: dict[str, Any], device: int, results: Any) -> None:
    torch.cuda.set_device(device)
    receiver = WeightReceiver(info)
    for version in (1, 2):
        expected = weights("cpu", version)
        got: dict[str, torch.Tensor] = {}
        receiver.receive([spec_of(name, tensor) for name, tensor in expected.items()], got.__setitem__)
        results.put(all(torch.equal(got[name].cpu(), expected[name]) for name in expected))
    receiver.close()


@pytest.mark.parametrize("backend", ["ipc", "nccl"])
def test_two_pushes_arrive_bit_for_bit(backend: str) -> None:
    devices = [0, 0] if backend == "ipc" else [1]
    if max(devices) >= torch.cuda.device_count():
        pytest.skip("needs two GPUs")
    info = {
        "backend": backend,
        "device": "cuda",
        "address": "127.0.0.1",
        "group": uuid.uuid4().hex,
        "world_size": 1 + len(devices),
        "timeout_s": 60.0,
        "bucket_bytes": 4 << 20,
    }
    context = multiprocessing.get_context("spawn")
    torch.cuda.set_device(0)
    results, sender = context.Queue(), WeightSender(info)
    ends = [{**info, "port": sender.port, "rank": number} for number in range(1, 1 + len(devices))]
    processes = [context.Process(target=receive, args=(e, d, results)) for e, d in zip(ends, devices, strict=True)]
    for process in processes:
        process.start()
    sender.join()
    for version in (1, 2):
        sender.send(weights("cuda", version).items())
    assert [results.get(timeout=60) for _ in range(2 * len(devices))] == [True] * (2 * len(devices))
    for process in processes:
        process.join(60)
    sender.close()

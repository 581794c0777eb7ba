import asyncio
from typing import Any

import pytest
import torch
from fakes import FakePolicyRank, LocalCalls

from skyrl_nat.errors import WeightSyncError
from skyrl_nat.weight_sync.base import TensorSpec
from skyrl_nat.weight_sync.host import HostTransport

WEIGHTS = {"a": torch.ones(2), "b": torch.zeros(3)}


class RecordingEngine:
    def __init__(self, error: Exception | None = None, delay_s: float = 0.0) -> None:
        self.error = error
        self.delay_s = delay_s
        self.updates: list[tuple[list[str], int, Any]] = []

    async def update_weights(self, manifest: list[TensorSpec], version: int, payload: Any) -> None:
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        self.updates.append(([spec.name for spec in manifest], version, payload))


class CountingRank(FakePolicyRank):
    num_exports = 0

    def export_weights(self, dtype: str | None = None) -> dict[str, torch.Tensor]:
        self.num_exports += 1
        return super().export_weights(dtype)


def push(ranks: list[FakePolicyRank], engines: list[RecordingEngine], timeout_s: float = 5) -> None:
    async def run() -> None:
        transport = HostTransport(timeout_s)
        await transport.push(LocalCalls(ranks), LocalCalls(engines), 3)

    asyncio.run(run())


def test_every_engine_gets_the_tensors_of_rank_0_and_every_rank_exports_once() -> None:
    ranks = [CountingRank(WEIGHTS, rank=rank) for rank in (0, 1)]
    engines = [RecordingEngine(), RecordingEngine()]
    push(list(ranks), engines)
    assert [rank.num_exports for rank in ranks] == [1, 1]
    for engine in engines:
        [(names, version, payload)] = engine.updates
        assert names == ["a", "b"]
        assert version == 3
        assert payload.keys() == WEIGHTS.keys()


def test_any_failure_is_a_weight_sync_error_with_its_cause() -> None:
    with pytest.raises(WeightSyncError, match="ValueError: broken"):
        push([FakePolicyRank(WEIGHTS)], [RecordingEngine(error=ValueError("broken"))])


def test_a_push_ends_at_its_deadline() -> None:
    with pytest.raises(WeightSyncError, match="must end within"):
        push([FakePolicyRank(WEIGHTS)], [RecordingEngine(delay_s=5)], timeout_s=0.05)

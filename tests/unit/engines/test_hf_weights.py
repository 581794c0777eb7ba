"""New weights in the embedded engine: all of them, none of the old cache, and nothing served after a failure."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_model import make_tiny_model
from torch import Tensor

from skyrl_nat.config.rollout import EngineConfig
from skyrl_nat.engines.hf import HfEngine
from skyrl_nat.errors import EngineError, WeightSyncError
from skyrl_nat.types import Completion, GenerationRequest, SamplingParams
from skyrl_nat.weight_sync.base import tensor_digest
from skyrl_nat.weight_sync.manifest import spec_of

PROMPT = list(range(20, 60))
Weights = dict[str, Tensor]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return two models that differ in every tensor; norms of fresh models are all ones."""
    root = tmp_path_factory.mktemp("models")
    first, second = [make_tiny_model(root / str(seed), seed=seed) for seed in (0, 1)]
    noise = torch.Generator().manual_seed(2)
    moved = {n: t + 0.1 * torch.randn(t.shape, generator=noise) for n, t in weights_of(second).items()}
    save_file(moved, second / "model.safetensors", {"format": "pt"})
    assert not any(torch.equal(tensor, moved[name]) for name, tensor in weights_of(first).items())
    return [first, second]


def weights_of(folder: Path) -> Weights:
    return load_file(folder / "model.safetensors")


def with_engine(folder: Path, work: Callable[[HfEngine], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        engine = HfEngine(str(folder), EngineConfig(), max_model_len=128, device="cpu", seed=0, num_threads=1)
        await engine.start()
        try:
            return await work(engine)
        finally:
            await engine.shutdown()

    return asyncio.run(run())


async def ask(engine: HfEngine) -> Completion:
    sampling = SamplingParams(max_new_tokens=12, temperature=0.0)
    return await engine.generate(GenerationRequest(request_id="r", prompt_token_ids=PROMPT, sampling=sampling))


async def push(engine: HfEngine, weights: Weights, version: int) -> None:
    await engine.pause()
    await engine.update_weights([spec_of(name, tensor) for name, tensor in weights.items()], version, weights)
    await engine.resume()


def test_after_an_update_of_every_tensor_the_engine_equals_a_cold_one(folders: list[Path]) -> None:
    """Rows 57 and 59, WS-04: same prompt before and after, no tensor and no cached prefix of the old weights."""

    async def update(engine: HfEngine) -> tuple[Completion, Completion, dict[str, str]]:
        before = await ask(engine)
        await push(engine, weights_of(folders[1]), 3)
        return before, await ask(engine), await engine.checksums()

    before, after, digests = with_engine(folders[0], update)
    cold = with_engine(folders[1], ask)
    assert (after.token_ids, after.logprobs) == (cold.token_ids, pytest.approx(cold.logprobs, abs=1e-5))
    assert before.logprobs != pytest.approx(after.logprobs[: len(before.logprobs)], abs=1e-3)
    assert set(after.token_versions) == {3}
    assert digests == {name: tensor_digest(tensor) for name, tensor in weights_of(folders[1]).items()}


def drop(weights: Weights) -> str:
    weights.pop("model.norm.weight")
    return "model.norm.weight: missing"


def prefix(weights: Weights) -> str:
    weights["_orig_mod.model.norm.weight"] = weights.pop("model.norm.weight")
    return "_orig_mod.model.norm.weight: unknown"


def reshape(weights: Weights) -> str:
    weights["model.norm.weight"] = torch.zeros(3)
    return r"model.norm.weight: shape \(3,\), not \(32,\)"


@pytest.mark.parametrize("spoil", [drop, prefix, reshape])
def test_a_set_of_weights_that_does_not_fit_is_refused_by_name(
    folders: list[Path], spoil: Callable[[Weights], str]
) -> None:
    """WS-02: the version is not raised, nothing is served in between, and the next good push heals."""
    bad = weights_of(folders[1])
    sentence = spoil(bad)

    async def scenario(engine: HfEngine) -> None:
        with pytest.raises(WeightSyncError, match=sentence):
            await push(engine, bad, 1)
        assert await engine.policy_version() == 0
        with pytest.raises(EngineError, match="Push weights with success"):
            await ask(engine)
        await push(engine, weights_of(folders[1]), 2)
        assert set((await ask(engine)).token_versions) == {2}

    with_engine(folders[0], scenario)


def test_a_push_that_breaks_in_the_middle_serves_nothing_until_one_succeeds(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """WS-08: the copy of the second tensor fails."""
    copied: list[str] = []
    copy = HfEngine._copy_one

    def fail_once(self: HfEngine, name: str, tensor: Tensor) -> None:
        copied.append(name)
        if len(copied) == 2:
            raise OSError("no space")
        copy(self, name, tensor)

    monkeypatch.setattr(HfEngine, "_copy_one", fail_once)

    async def scenario(engine: HfEngine) -> None:
        with pytest.raises(OSError, match="no space"):
            await push(engine, weights_of(folders[1]), 1)
        assert await engine.policy_version() == 0
        with pytest.raises(EngineError, match="the last weight update failed: OSError"):
            await engine.resume()
        with pytest.raises(EngineError, match="Push weights with success"):
            await ask(engine)
        await engine.check_health()
        await push(engine, weights_of(folders[1]), 2)
        assert set((await ask(engine)).token_versions) == {2}

    with_engine(folders[0], scenario)

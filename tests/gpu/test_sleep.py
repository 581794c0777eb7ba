"""WS-04, EN-08: after deep sleep an engine answers with the pushed weights as a fresh one does."""

import asyncio
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_model import make_tiny_model

from skyrl_nat.config.rollout import EngineConfig, EngineKind
from skyrl_nat.types import Completion, GenerationRequest, SamplingParams
from skyrl_nat.weight_sync.base import tensor_digest
from skyrl_nat.weight_sync.manifest import spec_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICE = "cuda"
EXTRA = {
    "compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 4]},
    "kv_cache_memory_bytes": 2**28,
}
"""A given size, since an engine that looks for free memory does not start while others give some back."""
CONFIG = EngineConfig(
    kind=EngineKind.vllm,
    dtype="bfloat16",
    max_num_seqs=4,
    gpu_memory_fraction=0.3,
    enforce_eager=False,
    extra=EXTRA,
    sleep=True,
)


async def answer(engine: object) -> list[Completion]:
    sampling = SamplingParams(max_new_tokens=24, temperature=0.0)
    asked = [
        GenerationRequest(request_id=f"r{n}", prompt_token_ids=list(range(20 + n, 60)), sampling=sampling)
        for n in range(3)
    ]
    return [await engine.generate(request) for request in asked]  # type: ignore[attr-defined]


def test_answers_after_two_sleeps_are_those_of_a_fresh_engine(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    from skyrl_nat.engines.vllm import VllmEngine

    def engine_of(folder: Path) -> VllmEngine:
        return VllmEngine(str(folder), CONFIG, max_model_len=256, device=DEVICE, seed=0, num_threads=1)

    folders = [make_tiny_model(tmp_path / str(seed), seed, hidden_size=256) for seed in (0, 1, 2)]

    async def scenario() -> None:
        engine = engine_of(folders[0])
        await engine.start()
        slept = []
        for version, folder in enumerate(folders[1:], 1):
            weights = {name: t.bfloat16() for name, t in load_file(folder / "model.safetensors").items()}
            await engine.pause()
            await engine.sleep()
            await engine.wake(["weights"])
            await engine.update_weights([spec_of(name, t) for name, t in weights.items()], version, weights)
            await engine.wake(["kv_cache"])
            assert await engine.checksums() == {name: tensor_digest(t) for name, t in weights.items()}
            await engine.resume()
            slept.append(await answer(engine))
        await engine.shutdown()
        for folder, found in zip(folders[1:], slept, strict=True):
            fresh = engine_of(folder)
            await fresh.start()
            expected = await answer(fresh)
            await fresh.shutdown()
            assert [one.token_ids for one in found] == [one.token_ids for one in expected]
            assert [one.logprobs for one in found] == [one.logprobs for one in expected]
        assert slept[0][0].logprobs != slept[1][0].logprobs

    asyncio.run(scenario())

"""An adapter on a GPU: CUDA graphs see each push, and the frozen weights come back from sleep."""

import asyncio
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_model import make_tiny_model

from skyrl_nat.config.model import LoraConfig
from skyrl_nat.config.rollout import AdapterPush, EngineConfig, EngineKind
from skyrl_nat.types import Completion, GenerationRequest, SamplingParams
from skyrl_nat.weight_sync.adapters import adapter_shapes
from skyrl_nat.weight_sync.base import tensor_digest
from skyrl_nat.weight_sync.manifest import spec_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
LORA = LoraConfig(rank=4)


def test_each_push_changes_the_answers_and_sleep_loses_nothing(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    from skyrl_nat.engines.vllm import VllmEngine

    folder = make_tiny_model(tmp_path / "model", hidden_size=256)
    weights = {name: tensor.bfloat16() for name, tensor in load_file(folder / "model.safetensors").items()}
    shapes = adapter_shapes({name: tuple(tensor.shape) for name, tensor in weights.items()}, LORA)
    random = torch.Generator().manual_seed(0)
    first, second = (
        {name: (0.3 * torch.randn(shape, generator=random)).bfloat16() for name, shape in shapes.items()}
        for _ in range(2)
    )
    config = EngineConfig(
        kind=EngineKind.vllm,
        adapters=AdapterPush.separate,
        dtype="bfloat16",
        max_num_seqs=4,
        gpu_memory_fraction=0.3,
        enforce_eager=False,
        extra={
            "compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1]},
            "kv_cache_memory_bytes": 2**28,
        },
    )
    engine = VllmEngine(str(folder), config, max_model_len=256, device="cuda", seed=0, num_threads=1, lora=LORA)

    async def answer() -> Completion:
        sampling = SamplingParams(max_new_tokens=24, temperature=0.0)
        return await engine.generate(
            GenerationRequest(request_id="r", prompt_token_ids=list(range(20, 60)), sampling=sampling)
        )

    async def scenario() -> None:
        await engine.start()
        answers = []
        for version, adapter in enumerate((first, second, first), 1):
            await engine.pause()
            if version == 3:
                await engine.sleep()
                await engine.wake(["weights"])
            await engine.update_weights([spec_of(name, tensor) for name, tensor in adapter.items()], version, adapter)
            if version == 3:
                await engine.wake(["kv_cache"])
            assert await engine.checksums() == {n: tensor_digest(t) for n, t in (weights | adapter).items()}
            await engine.resume()
            answers.append(await answer())
        await engine.shutdown()
        assert answers[0].logprobs != answers[1].logprobs
        assert (answers[2].token_ids, answers[2].logprobs) == (answers[0].token_ids, answers[0].logprobs)

    asyncio.run(scenario())

"""Tokens that were guessed from the prompt bring the log-probs of the distribution they are sampled from."""

import asyncio
from pathlib import Path

import pytest
import torch
from tiny_model import make_tiny_model

from skyrl_nat.config.rollout import EngineConfig, EngineKind
from skyrl_nat.types import Completion, GenerationRequest, SamplingParams

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
PROMPT = list(range(20, 44)) * 4
"""Says itself again, so that look-ups find something to guess."""


def sampled(folder: Path, num_speculative_tokens: int) -> list[Completion]:
    """Sample from one engine: the likeliest tokens, and two drawn answers."""
    from skyrl_nat.engines.vllm import VllmEngine

    config = EngineConfig(
        kind=EngineKind.vllm,
        dtype="float32",
        max_num_seqs=4,
        gpu_memory_fraction=0.2,
        num_speculative_tokens=num_speculative_tokens,
        sleep=False,
        extra={"kv_cache_memory_bytes": 2**28},
    )
    engine = VllmEngine(str(folder), config, max_model_len=256, device="cuda", seed=0, num_threads=1)

    async def scenario() -> list[Completion]:
        await engine.start()
        assert bool(engine._llm.vllm_config.speculative_config) is bool(num_speculative_tokens)
        found = [
            await engine.generate(
                GenerationRequest(
                    request_id=f"r{temperature}",
                    prompt_token_ids=PROMPT,
                    sampling=SamplingParams(max_new_tokens=64, temperature=temperature, seed=1),
                )
            )
            for temperature in (0.0, 1.0, 0.7)
        ]
        await engine.shutdown()
        return found

    return asyncio.run(scenario())


def test_guessed_tokens_are_scored_as_sampled_ones(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    from transformers import AutoModelForCausalLM

    folder = make_tiny_model(tmp_path / "model", hidden_size=256)
    guessed, plain = sampled(folder, 3), sampled(folder, 0)
    assert guessed[0].token_ids == plain[0].token_ids
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).cuda()
    for temperature, answer in zip((1.0, 1.0, 0.7), guessed, strict=True):
        tokens = torch.tensor([PROMPT + answer.token_ids], device="cuda")
        with torch.no_grad():
            logits = model(tokens).logits[0, len(PROMPT) - 1 : -1].float()
        expected = torch.log_softmax(logits / temperature, -1).gather(1, tokens[0, len(PROMPT) :, None])[:, 0]
        assert torch.tensor(answer.logprobs) == pytest.approx(expected.cpu(), abs=2e-3)

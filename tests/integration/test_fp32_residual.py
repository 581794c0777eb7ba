"""The residual stream in fp32 in a real vLLM: how far its log-probs are from exact ones, with a real model in bf16."""

import asyncio
from pathlib import Path

import pytest
import torch
from policy_ranks import make_grid, make_worker

from skyrl_nat.checkpoint.pretrained import resolve_model
from skyrl_nat.config.rollout import EngineConfig, EngineKind
from skyrl_nat.engines.vllm import VllmEngine
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.types import Completion, GenerationRequest, SamplingParams, TrainingSample

SUBJECTS = ("a lighthouse", "an old dog", "the sea", "winter")
NUM_TOKENS = 48


def play(folder: Path, prompts: list[list[int]], *, is_wide: bool) -> list[Completion]:
    config = EngineConfig(kind=EngineKind.vllm, dtype="bfloat16", max_num_seqs=4, fp32_head=True, fp32_residual=is_wide)

    async def run() -> list[Completion]:
        engine = VllmEngine(str(folder), config, max_model_len=256, device="cpu", seed=0, num_threads=1)
        await engine.start()
        sampling = SamplingParams(max_new_tokens=NUM_TOKENS, seed=3)
        requests = [
            GenerationRequest(request_id=f"r{number}", prompt_token_ids=prompt, sampling=sampling)
            for number, prompt in enumerate(prompts)
        ]
        try:
            return list(await asyncio.gather(*(engine.generate(request) for request in requests)))
        finally:
            await engine.shutdown()

    return asyncio.run(run())


def own_rounding(folder: Path, prompts: list[list[int]], answers: list[Completion]) -> float:
    """Return the mean distance of sampled tokens' log-probs from those of exact arithmetic with the same weights."""
    samples = [
        TrainingSample(
            sample_id=str(number),
            rollout_id=str(number),
            group_id=str(number),
            token_ids=prompt + answer.token_ids,
            loss_mask=[False] * len(prompt) + [True] * len(answer.token_ids),
            rollout_logprobs=[0.0] * len(prompt) + answer.logprobs,
            advantages=[0.0] * (len(prompt) + len(answer.token_ids)),
            oldest_version=0,
        )
        for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
    ]
    (row,), _ = make_grid(samples, budget=2048)
    exact = torch.cat(make_worker(folder).compute_logprobs(row))
    mask = torch.cat([batch.loss_mask for batch in row])
    played = torch.cat([batch.rollout_logprobs for batch in row])
    return float((exact - played)[mask].abs().mean())


@pytest.mark.long
def test_an_engine_in_bf16_comes_nearer_to_exact_log_probs() -> None:
    pytest.importorskip("vllm")
    folder = resolve_model("smollm2-135m-instruct")
    codec = ChatCodec.from_folder(folder)
    prompts = [
        codec.prompt_tokens([{"role": "user", "content": f"Write a story about {subject}."}]) for subject in SUBJECTS
    ]
    plain, wide = (own_rounding(folder, prompts, play(folder, prompts, is_wide=is_wide)) for is_wide in (False, True))
    assert 0 < wide < 0.75 * plain

"""A real `vllm serve` on the CPU behind the checks of a deployment, with the numbers of the policy that it serves."""

import asyncio
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import torch
from tiny_model import make_tiny_model
from transformers import AutoModelForCausalLM

from skyrl_nat.data.specs import load_tasks
from skyrl_nat.deploy.policy_client import Endpoint, PolicyClient
from skyrl_nat.deploy.prompt_check import check_prompts, first_dialogues
from skyrl_nat.deploy.running import Served, Subject, deployed
from skyrl_nat.errors import ConfigError
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.types import Completion, GenerationRequest, SamplingParams

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]
MAX_TOKENS = 4096
OVERRIDES = (
    "engine=vllm",
    "environment=nat_agent",
    "environment.max_difficulty=1",
    f"rollout.max_total_tokens={MAX_TOKENS}",
    "engine.max_num_seqs=2",
    "engine.start_timeout_s=800",
)


def tiny_model(folder: Path) -> Path:
    model = make_tiny_model(folder / "model", hidden_size=128)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": MAX_TOKENS}))
    return model


async def prefix_hits(endpoint: Endpoint) -> float:
    async with aiohttp.ClientSession() as session, session.get(endpoint.base_url.replace("/v1", "/metrics")) as answer:
        found = re.search(r"^vllm:prefix_cache_hits_total\{.*\} (\S+)$", await answer.text(), re.MULTILINE)
    assert found is not None
    return float(found[1])


def largest_difference(model: Path, prompt: list[int], completion: Completion) -> float:
    """How far log-probs of sampled tokens are from those of a plain forward pass."""
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.no_grad():
        logits = network(torch.tensor([prompt + completion.token_ids])).logits[0, len(prompt) - 1 : -1]
    right = logits.log_softmax(-1).gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0].tolist()
    return max(abs(a - b) for a, b in zip(right, completion.logprobs, strict=True))


async def check(served: Served, model: Path) -> None:
    server = served.deployment.current
    assert server is not None and served.describe()["is_alive"]
    config, codec = served.material.config, ChatCodec.from_folder(model)
    tasks = load_tasks(config.environment.validation_files, max_difficulty=1)
    dialogues = first_dialogues(tasks, config.environment, max_turns=config.rollout.max_turns)
    fitting = [each for each in dialogues if len(codec.prompt_tokens(each)) < MAX_TOKENS - 32][:2]
    endpoint = server.plan.endpoint
    async with PolicyClient(endpoint) as client:
        assert await check_prompts(client, codec, fitting) == len(fitting) > 0
        prompt = codec.prompt_tokens(fitting[0])
        sampling = SamplingParams(max_new_tokens=8, temperature=0.0)
        before = await prefix_hits(endpoint)
        request = GenerationRequest(request_id="r", prompt_token_ids=prompt, sampling=sampling)
        first = await client.generate(request)
        assert (await client.generate(request)).token_ids == first.token_ids
        assert await prefix_hits(endpoint) - before > len(prompt), "a prompt that was seen is not computed again"
        assert largest_difference(model, prompt, first) < 1e-4
        cold = replace(request, sampling=replace(sampling, temperature=0.5, seed=3))
        again = await client.generate(cold)
        assert (await client.generate(cold)).token_ids == again.token_ids, "the seed decides"
        assert math.isfinite(sum(again.logprobs)) and again.logprobs != first.logprobs
        codec._tokenizer.chat_template = "{% for m in messages %}{{ m['content'] + '<|im_end|>' }}{% endfor %}"
        with pytest.raises(ConfigError, match="The served prompt must be the training prompt"):
            await check_prompts(client, codec, fitting)


def test_vllm_serves_the_training_prompts_with_prefix_caching_and_the_policys_own_log_probs(tmp_path: Path) -> None:
    model = tiny_model(tmp_path)

    async def scenario() -> None:
        subject = Subject(what=str(model), overrides=OVERRIDES)
        async with deployed(subject, tmp_path / "deployment", probation_s=1.0) as served:
            await check(served, model)
            server = served.deployment.current
        assert server is not None and not server.is_alive

    asyncio.run(scenario())
    assert json.loads((tmp_path / "deployment" / "current.json").read_text())["what"] == str(model)

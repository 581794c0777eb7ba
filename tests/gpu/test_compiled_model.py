"""On a GPU: the compiled model gives the values and gradients of the plain one, in few compilations."""

from pathlib import Path

import pytest
import torch
from tiny_model import make_tiny_model

from skyrl_nat.batching.packing import build_micro_batch
from skyrl_nat.config.model import Dtype, ModelConfig
from skyrl_nat.types import TrainingSample
from skyrl_nat.workers.model import PackedCausalLM, build_packed_model, load_weights

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CUDA = torch.device("cuda")


def make(folder: Path, dtype: Dtype, **changes: bool) -> PackedCausalLM:
    config = ModelConfig(path=str(folder), dtype=dtype, compute_dtype=dtype, logprob_chunk_tokens=64, **changes)
    module = build_packed_model(folder, config, temperature=0.8, is_trainable=True)
    load_weights(module, folder, CUDA)
    return module


def sample(number: int, length: int) -> TrainingSample:
    generator = torch.Generator().manual_seed(number)
    return TrainingSample(
        sample_id=str(number),
        rollout_id=str(number),
        group_id=str(number),
        token_ids=torch.randint(3, 200, (length,), generator=generator).tolist(),
        loss_mask=[i > 2 for i in range(length)],
        rollout_logprobs=[-1.0] * length,
        advantages=[float(i > 2) for i in range(length)],
        oldest_version=0,
    )


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_compiled_layers_and_head_give_the_plain_values_and_gradients(tmp_path: Path, is_checkpointed: bool) -> None:
    folder = make_tiny_model(tmp_path, hidden_size=64)
    found = []
    for is_compiled in (False, True):
        module = make(folder, Dtype.float32, compile=is_compiled, activation_checkpointing=is_checkpointed)
        values = []
        for lengths in ((40, 9, 130), (77,), (5, 6, 7, 8, 200)):
            samples = [sample(number, length) for number, length in enumerate(lengths)]
            batch = build_micro_batch(samples, [1.0] * len(samples)).to(CUDA)
            logprobs, entropies = module.score(batch)
            (logprobs.sum() + 0.1 * entropies.sum()).backward()
            values += [logprobs.detach(), entropies.detach()]
        found.append([*values, *(p.grad for p in module.parameters())])
    for plain, compiled in zip(*found, strict=True):
        assert torch.allclose(plain, compiled, rtol=1e-3, atol=2e-4)


def test_many_lengths_need_few_compilations_and_lengths_seen_before_none(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path, hidden_size=64)
    module = make(folder, Dtype.bfloat16, compile=True)
    torch._dynamo.utils.counters.clear()
    counts = []
    for _ in range(2):
        for lengths in ((40, 9), (77, 3), (130,), (5, 6, 7, 8), (64,), (201, 33, 7)):
            samples = [sample(number, length) for number, length in enumerate(lengths)]
            logprobs, _ = module.score(build_micro_batch(samples, [1.0] * len(samples)).to(CUDA))
            logprobs.sum().backward()
            counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert counts[-1] == counts[5] <= 16, counts

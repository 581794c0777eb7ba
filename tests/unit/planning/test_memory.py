"""Bytes by part: worked out by hand on a small decoder, held against P3, and how they must move."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyrl_nat.config.load import load_config
from skyrl_nat.config.model import Offload
from skyrl_nat.config.run import RunConfig
from skyrl_nat.planning.changes import changed
from skyrl_nat.planning.memory import ASLEEP_GIB, CONTEXT_GIB, PolicyMemory, cpu_memory, engine_memory, gpu_memory
from skyrl_nat.planning.model_shape import KNOWN, Decoder, find_decoder

GIB = 2**30
RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
SMALL = Decoder(
    hidden=4,
    inner=8,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_size=2,
    vocabulary=10,
    is_tied=False,
    has_attention_bias=False,
)
"""A layer: 4 x (2 x 4 + 2 x 2) + 3 x 4 x 8 + 2 x 4 = 152 parameters; the root: 2 x 10 x 4 + 4 = 84; all: 388."""


@pytest.fixture(scope="module")
def gpu_config() -> RunConfig:
    return load_config(
        [
            "cluster=h100x1",
            "engine=vllm_gpu",
            "weight_sync=ipc",
            "model.compute_dtype=bfloat16",
            "model.compile=true",
            "model.logprob_chunk_tokens=16",
            "trainer.micro_batch_tokens=100",
            "rollout.max_total_tokens=100",
            "rollout.max_new_tokens=50",
        ]
    )


def test_a_small_decoder_takes_what_a_hand_works_out(gpu_config: RunConfig):
    policy = PolicyMemory(gpu_config, SMALL)
    assert SMALL.num_parameters == 388
    assert (policy.weights, policy.gradients, policy.optimizer) == (4 * 388, 4 * 388, 8 * 388)
    assert policy.gathered == 2 * 388, "a rank alone casts all of them"
    # 2 x (3 x 8 + 4 x 4 + 2 x 4 + 2 x 2) + 4 x 2 + 8
    assert policy.layer_bytes_per_token == 120
    # 100 tokens x (2 layers x 120 + 5 x 2 x 4 + 640)
    assert policy.activations == 100 * (240 + 40 + 640)
    # 16 tokens x 10 words x (2 + 2 + 4 + 2), and the head's gradient in fp32
    assert policy.logits == 16 * 10 * 10 + 4 * 40
    # the largest tensor in bf16, and two buckets of 512 MiB
    assert policy.push_buffers == 2 * 40 + 2 * 512 * 2**20


def test_two_ranks_halve_the_shards_and_gather_two_layers_and_the_root(gpu_config: RunConfig):
    two = changed(gpu_config, {"cluster.num_gpus_per_node": 2, "cluster.num_policy_ranks": 2, "cluster.num_engines": 2})
    policy = PolicyMemory(two, SMALL)
    assert (policy.weights, policy.optimizer) == (2 * 388, 4 * 388)
    assert policy.gathered == 2 * (2 * 152 + 84)
    kept = changed(two, {"model.reshard_after_forward": False})
    assert PolicyMemory(kept, SMALL).gathered == 2 * 388
    copies = changed(two, {"cluster.num_replicas": 2})
    assert PolicyMemory(copies, SMALL).weights == 4 * 388, "each copy is whole on one rank"


def test_adapters_alone_have_gradients_and_moments(gpu_config: RunConfig):
    policy = PolicyMemory(changed(gpu_config, {"model.lora.rank": 2}), SMALL)
    # q, o: 4 + 4; k, v: 4 + 2; gate, up, down: 4 + 8; two layers, rank 2
    adapters = 2 * 2 * (8 + 6 + 6 + 8 + 12 + 12 + 12)
    assert SMALL.lora_parameters(2, gpu_config.model.lora.targets) == adapters == 256
    assert (policy.weights, policy.gradients, policy.optimizer) == (4 * (388 + 256), 4 * 256, 8 * 256)
    assert policy.logits == 16 * 10 * 10, "a frozen head has no gradient"


def test_recomputation_keeps_inputs_alone_and_offload_not_even_those(gpu_config: RunConfig):
    recomputed = changed(gpu_config, {"model.activation_checkpointing": True})
    assert PolicyMemory(recomputed, SMALL).activations == 100 * (2 * 4 * 2 + 40 + 640)
    away = changed(recomputed, {"model.activation_offload": True})
    assert PolicyMemory(away, SMALL).activations == 100 * (40 + 640)


def test_what_is_not_compiled_keeps_more(gpu_config: RunConfig):
    eager = PolicyMemory(changed(gpu_config, {"model.compile": False}), SMALL)
    # the activation's result 2 x 8, what norms cast and multiply 8 x 4, copies of q, k and v 2 x (4 + 2 x 2)
    assert eager.layer_bytes_per_token == 120 + 16 + 32 + 16
    assert eager.logits == 16 * 10 * 14 + 4 * 40


def test_every_size_of_p3_is_within_five_percent_of_its_measurement():
    """Of the last version, from which the formula comes, within one."""
    decoder, num_sizes = find_decoder("qwen2.5-1.5b"), 0
    for path in RESULTS.glob("P3-*.json"):
        raw = json.loads(path.read_text())["raw"]
        for size in raw["sizes"]:
            tokens = [f"trainer.micro_batch_tokens={size['tokens']}"]
            policy = PolicyMemory(load_config([*raw["overrides"], *tokens]), decoder)
            found = sum(policy.training(num_micro_batches=1).values())
            bar = 0.01 if "11-29" in path.name else 0.05
            assert found == pytest.approx(size["peak_gib"], rel=bar)
            num_sizes += 1
    assert num_sizes == 8


def test_an_engines_cache_is_what_weights_and_work_space_leave(gpu_config: RunConfig):
    decoder = find_decoder("qwen2.5-7b")
    found = engine_memory(gpu_config, decoder, 80.0)
    weights = 2 * 7_615_616_512 / GIB
    assert found["KV cache"] == pytest.approx(0.5 * 80 - weights - 2)
    tokens = gpu_memory(gpu_config, decoder, 80.0).kv_tokens
    # 28 layers x keys and values x 4 heads x 128 x 2 bytes
    assert tokens == int(found["KV cache"] * GIB / (28 * 2 * 4 * 128 * 2))


def test_phases_hold_what_is_there_in_them(gpu_config: RunConfig):
    decoder = find_decoder("qwen2.5-7b")
    found = gpu_memory(gpu_config, decoder, 140.0)
    assert "engine weights" not in found.training.parts, "engines sleep"
    assert found.training.parts["engine work space"] == ASLEEP_GIB
    assert found.rollout.parts["optimizer"] > 0, "nothing is offloaded"
    away = gpu_memory(changed(gpu_config, {"model.offload": Offload.all}), decoder, 140.0)
    assert away.rollout.parts["optimizer"] == away.rollout.parts["weights"] == 0
    assert away.push.parts["weights"] == found.push.parts["weights"] > 0
    awake = gpu_memory(changed(gpu_config, {"engine.sleep": False}), decoder, 140.0)
    assert awake.training.parts["KV cache"] == awake.rollout.parts["KV cache"] > 0
    assert found.rollout.parts["contexts"] == CONTEXT_GIB


def test_cards_of_their_own_hold_one_side_each():
    apart = load_config(
        [
            "cluster=h100x1",
            "engine=vllm_gpu",
            "weight_sync=nccl",
            "cluster.placement=disaggregated",
            "cluster.num_gpus_per_node=2",
            "model.compute_dtype=bfloat16",
        ]
    )
    found = gpu_memory(apart, find_decoder("qwen2.5-1.5b"), 80.0)
    assert "optimizer" not in found.rollout.parts
    assert "KV cache" not in found.training.parts


ranks = st.sampled_from([1, 2, 4, 8, 16, 32])
models = st.sampled_from(sorted(KNOWN))


def layout(config: RunConfig, num_ranks: int, **values: object) -> RunConfig:
    """Return a config over so many ranks; names have `__` for dots."""
    cluster = {"cluster.num_gpus_per_node": num_ranks, "cluster.num_policy_ranks": num_ranks}
    return changed(config, {**cluster, **{name.replace("__", "."): value for name, value in values.items()}})


@settings(max_examples=60)
@given(ranks, ranks, models, st.booleans(), st.booleans(), st.integers(1, 5))
def test_more_cards_never_need_more_on_each(
    gpu_config: RunConfig, few: int, many: int, model: str, is_recomputed: bool, is_compiled: bool, micro_batches: int
):
    few, many = sorted((few, many))
    values = {"model__activation_checkpointing": is_recomputed, "model__compile": is_compiled}
    totals = [
        gpu_memory(
            layout(gpu_config, number, **values), find_decoder(model), 80.0, num_micro_batches=micro_batches
        ).training.total
        for number in (few, many)
    ]
    assert totals[1] <= totals[0]


@settings(max_examples=60)
@given(ranks, models, st.sampled_from([4, 16, 64]), st.integers(1, 5))
def test_adapters_never_need_more_than_all_weights(
    gpu_config: RunConfig, number: int, model: str, rank: int, micro_batches: int
):
    decoder = find_decoder(model)
    full, adapters = (
        gpu_memory(layout(gpu_config, number, **values), decoder, 80.0, num_micro_batches=micro_batches)
        for values in ({}, {"model__lora__rank": rank})
    )
    assert adapters.training.total <= full.training.total
    assert adapters.rollout.total <= full.rollout.total


@settings(max_examples=40)
@given(ranks, models, st.integers(100, 50_000), st.integers(100, 50_000))
def test_a_larger_budget_never_needs_less(gpu_config: RunConfig, number: int, model: str, one: int, other: int):
    totals = [
        gpu_memory(
            layout(gpu_config, number, trainer__micro_batch_tokens=tokens), find_decoder(model), 80.0
        ).training.total
        for tokens in sorted((one, other))
    ]
    assert totals[0] <= totals[1]


def test_a_machine_without_gpus_holds_every_process():
    one = load_config(["experiment=smoke_cpu"])
    decoder = find_decoder("smollm2-135m")
    two = changed(one, {"cluster.num_engines": 2})
    first, second = cpu_memory(one, decoder), cpu_memory(two, decoder)
    assert first.parts["weights"] == pytest.approx(4 * 134_515_008 / GIB)
    assert second.total - first.total == pytest.approx(
        first.parts["engine weights"] + first.parts["KV cache"] + 0.45
    ), "another engine has weights, keys and values and a process of its own"

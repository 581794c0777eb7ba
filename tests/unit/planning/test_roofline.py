"""Seconds of stages: against hand-made sums, and how they must move."""

import pytest

from skyrl_nat.config.algorithm import OldLogprobs
from skyrl_nat.config.load import load_config
from skyrl_nat.config.run import RunConfig
from skyrl_nat.planning.changes import changed
from skyrl_nat.planning.model_shape import find_decoder
from skyrl_nat.planning.rates import PushRates, machine_of
from skyrl_nat.planning.roofline import Roofline
from skyrl_nat.planning.workload import Workload, guess_workload

WORK = Workload(prompt_tokens=100, sampled_tokens=400, longest_tokens=1000)
H100 = machine_of("h100")


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return load_config(["experiment=agenthands_h100x1"])


def roofline(config: RunConfig, **values: object) -> Roofline:
    """Return the seconds of a changed config; names have `__` for dots."""
    found = changed(config, {name.replace("__", "."): value for name, value in values.items()})
    return Roofline(found, find_decoder(found.model.path), H100, WORK)


def test_a_groups_prompt_is_computed_once(config: RunConfig):
    found = roofline(config)
    assert found.trained_tokens == 128 * 500
    assert found.computed_tokens == 16 * (100 + 8 * 400)


def test_micro_batches_hold_whole_rollouts(config: RunConfig):
    assert roofline(config).num_micro_batches == 4, "128 x 500 tokens less shared prompts in budgets of 16,384"
    work = Workload(prompt_tokens=0, sampled_tokens=5000, longest_tokens=8000)
    long_ones = Roofline(config, find_decoder(config.model.path), H100, work)
    assert long_ones.num_micro_batches == 43, "three rollouts in each"


def test_a_decoding_step_reads_all_weights(config: RunConfig):
    decoder = find_decoder(config.model.path)
    step = roofline(config).decode_step(context_tokens=1000)
    weights = 2 * decoder.cost.num_matmul_parameters / (0.85 * 3.35e12)
    assert step.fixed_s == pytest.approx(1.5e-3 + weights)
    keys_and_values = 2 * 28 * 2 * 128 * 2 * 1000
    assert step.sequence_s == pytest.approx(39.5e-6 + keys_and_values / (0.85 * 3.35e12))
    assert step.seconds(10) == pytest.approx(step.fixed_s + 10 * step.sequence_s)


def test_a_push_is_a_fixed_time_and_bytes_over_a_rate(config: RunConfig):
    decoder, rates = find_decoder(config.model.path), PushRates()
    expected = rates.colocated_s + 2 * decoder.num_parameters / rates.colocated_bytes
    assert roofline(config).push_s() == pytest.approx(expected)
    adapters = roofline(config, model__lora__rank=16)
    assert adapters.push_s() < expected


def test_adapters_and_compiling_are_faster_and_recomputing_and_further_passes_slower(config: RunConfig):
    plain = roofline(config, model__activation_checkpointing=False).train_s()
    assert roofline(config, model__activation_checkpointing=False, model__lora__rank=16).train_s() < plain
    assert roofline(config, model__activation_checkpointing=False, model__compile=False).train_s() > plain
    assert plain < roofline(config).train_s() < 4 / 3 * plain
    more = roofline(config, algorithm__old_logprobs=OldLogprobs.recompute).train_s()
    assert more > roofline(config).train_s()
    assert roofline(config, algorithm__kl_coefficient=0.1).train_s() == pytest.approx(more)


def test_more_ranks_train_faster_and_other_nodes_are_further_away(config: RunConfig):
    def over(number: int, per_node: int = 8) -> float:
        return roofline(
            config,
            cluster__num_nodes=max(1, number // per_node),
            cluster__num_gpus_per_node=min(number, per_node),
            cluster__num_policy_ranks=number,
            cluster__num_engines=number,
        ).train_s()

    times = [over(number) for number in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True)
    assert over(8, per_node=4) >= over(8)


def test_offload_costs_what_crosses_the_bus(config: RunConfig):
    decoder = find_decoder(config.model.path)
    assert roofline(config).offload_s() == 0
    moved = 2 * 12 * decoder.num_parameters / 55e9
    assert roofline(config, model__offload="all").offload_s() == pytest.approx(moved, rel=0.34)


def test_lengths_are_half_of_what_limits_allow_unless_they_are_told(config: RunConfig):
    guessed = guess_workload(config)
    assert guessed.sampled_tokens == pytest.approx((8192 - 1646) / 2)
    assert guess_workload(config, mean_tokens=300).sampled_tokens == 300
    assert guess_workload(config, mean_tokens=1e9).sampled_tokens == 8192 - 1646
    assert guessed.total_tokens <= 8192

"""Settings that cannot run are refused, and the line that the refusal gives cures them."""

import re

import pytest

from skyrl_nat.config.load import load_config
from skyrl_nat.errors import ConfigError
from skyrl_nat.planning.hardware import Cpu, cpu_machine
from skyrl_nat.planning.model_shape import find_decoder
from skyrl_nat.planning.rates import Machine, machine_of
from skyrl_nat.planning.refusals import check, fits

SMALL_MACHINE = cpu_machine(
    Cpu(model="small", num_cores=2, num_cores_of_machine=2, ghz=2.0, vectors=("AVX2",)), memory_gib=6.0
)
ONE = ["experiment=agenthands_h100x1"]
BEFORE_LORA = ["experiment=agenthands_h100x8", "model.lora.rank=0"]


@pytest.mark.parametrize(
    ("overrides", "machine", "sentence"),
    [
        ([*ONE, "engine.gpu_memory_fraction=0.05"], machine_of("h100"), "must give an engine more than the 2.9 GiB"),
        ([*ONE, "model.path=qwen2.5-32b"], machine_of("h100"), "must give an engine more than the 61.0 GiB"),
        (
            [*ONE, "engine.gpu_memory_fraction=0.064", "rollout.max_total_tokens=16384"],
            machine_of("h100"),
            r"rollout.max_total_tokens must fit the KV cache of an engine \(8,201 tokens in 0.2 GiB\), got 16,384",
        ),
        (
            [*ONE, "model.activation_checkpointing=false", "trainer.micro_batch_tokens=65536"],
            machine_of("h100"),
            "H100 80GB HBM3 must hold .* GiB in training .activations",
        ),
        ([*ONE, "engine.gpu_memory_fraction=0.95"], machine_of("h100"), "GiB in the rollouts .KV cache"),
        ([*ONE, "engine.sleep=false", "engine.gpu_memory_fraction=0.7"], machine_of("h100"), "GiB in training"),
        (BEFORE_LORA, machine_of("h100"), "must hold 88.. GiB in training .optimizer 30.5"),
        (["experiment=smoke_cpu", "model.logprob_chunk_tokens=1024"], SMALL_MACHINE, "cluster.device=cpu must have"),
    ],
)
def test_what_cannot_run_is_refused_with_a_line_that_cures_it(overrides: list[str], machine: Machine, sentence: str):
    config = load_config(overrides)
    decoder = find_decoder(config.model.path)
    with pytest.raises(ConfigError, match=sentence) as refused:
        check(config, decoder, machine)
    assert "\n" not in str(refused.value)
    line = re.search(r"\. (?:Add (.*)|Take more GPUs.*)$", str(refused.value))
    assert line is not None
    if line[1] is not None:
        cured = load_config([*overrides, *line[1].split()])
        assert fits(cured, decoder, machine)
    else:
        assert "32b" in config.model.path or not machine.is_gpu


def test_a_single_line_is_preferred():
    config = load_config([*ONE, "engine.gpu_memory_fraction=0.05"])
    with pytest.raises(ConfigError, match=r"Add engine.gpu_memory_fraction=0.1$"):
        check(config, find_decoder(config.model.path), machine_of("h100"))


def test_heads_that_do_not_share_out_are_refused():
    config = load_config(["experiment=agenthands_h100x8", "cluster.num_gpus_per_engine=8", "cluster.num_engines=1"])
    check(config, find_decoder(config.model.path), machine_of("h100"))
    odd = load_config(["experiment=agenthands_h100x8", "cluster.num_gpus_per_engine=3", "cluster.num_engines=2"])
    with pytest.raises(ConfigError, match=r"cluster.num_gpus_per_engine must divide the query heads .* got 3"):
        check(odd, find_decoder(odd.model.path), machine_of("h100"))


@pytest.mark.parametrize(
    ("experiment", "card"),
    [
        ("agenthands_h100x1", "h100"),
        ("agenthands_h100x8", "h100"),
        ("first_experiment_h100x1", "h100"),
        ("jira_h100x1", "h100"),
        ("task_dag_h100x1", "h100"),
    ],
)
def test_every_gpu_preset_fits_the_card_of_its_name(experiment: str, card: str):
    config = load_config([f"experiment={experiment}"])
    check(config, find_decoder(config.model.path), machine_of(card), num_micro_batches=8)

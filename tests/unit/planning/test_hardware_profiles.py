"""What a user who names nothing gets: it composes, and it fits the machine for which it was picked."""

from dataclasses import replace

import pytest

from skyrl_nat.config.load import load_config
from skyrl_nat.errors import ConfigError
from skyrl_nat.planning.gpus import Gpu, Gpus
from skyrl_nat.planning.hardware import Hardware, look
from skyrl_nat.planning.model_shape import find_decoder
from skyrl_nat.planning.profiles import NAMES, PROFILES, overrides_of, resolve
from skyrl_nat.planning.refusals import fits


def machine(name: str = "", gib: float = 0, number: int = 0, num_cores: int = 64) -> Hardware:
    """Return a machine with so many cards of a kind."""
    found = look()
    cards = (Gpu(name, int(gib * 1024)),) * number
    gpus = Gpus("cuda" if cards else "none", cards)
    return replace(found, gpus=gpus, cpu=replace(found.cpu, num_cores=num_cores, num_cores_of_machine=num_cores))


MACHINES = [
    ("cpu_only", machine()),
    ("cpu_only", machine("Tesla T4", 15, 1)),
    ("gpu", machine("NVIDIA GeForce RTX 4090", 24, 1)),
    ("gpu", machine("NVIDIA A100-SXM4-40GB", 40, 8)),
    ("workstation", machine("NVIDIA H100 80GB HBM3", 79.6, 1)),
    ("workstation", machine("NVIDIA A100-SXM4-80GB", 80, 4)),
    ("h100x8", machine("NVIDIA H100 80GB HBM3", 79.6, 8)),
    ("h100x8", machine("NVIDIA H200", 140.4, 8)),
]


@pytest.mark.parametrize(("name", "hardware"), MACHINES)
def test_auto_picks_the_largest_that_fits(name: str, hardware: Hardware):
    profile = resolve("auto", hardware)
    assert profile.name == name
    config = load_config(overrides_of(profile, hardware))
    assert fits(config, find_decoder(config.model.path), hardware.machine)
    assert config.cluster.num_gpus_per_node == (0 if name == "cpu_only" else len(hardware.gpus.cards))
    assert config.cluster.num_policy_ranks == max(1, config.cluster.num_gpus_per_node)


def test_all_profiles_are_picked_by_some_machine():
    assert {name for name, _ in MACHINES} == set(PROFILES)


def test_few_cores_get_few_judges():
    hardware = machine("NVIDIA H100 80GB HBM3", 79.6, 1, num_cores=4)
    config = load_config(overrides_of(resolve("auto", hardware), hardware))
    assert (config.cluster.num_environment_workers, config.cluster.num_reward_workers) == (2, 2)


def test_a_small_card_trains_adapters():
    hardware = machine("NVIDIA GeForce RTX 4090", 24, 1)
    config = load_config(overrides_of(resolve("auto", hardware), hardware))
    assert (config.model.lora.rank, config.model.lora.alpha) == (32, 64)


def test_a_profile_can_be_named_on_any_machine_and_others_are_refused():
    assert resolve("h100x8", machine()) is PROFILES["h100x8"]
    with pytest.raises(ConfigError, match=f"must be one of {', '.join(NAMES)}, got 'h100'"):
        resolve("h100", machine())

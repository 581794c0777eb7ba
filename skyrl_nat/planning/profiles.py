"""What a user who names nothing gets: profiles by what the machine has, as overrides."""

from collections.abc import Callable
from dataclasses import dataclass

from skyrl_nat.errors import ConfigError
from skyrl_nat.planning.hardware import Hardware

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One kind of machine, and what fits it."""

    name: str
    model: str
    """That is trained."""
    reason: str
    """One sentence."""
    overrides: tuple[str, ...]


CPU_ONLY = Profile(
    name="cpu_only",
    model="SmolLM2-135M-Instruct",
    reason="No GPU: the smallest model that writes files, in fp32, with the embedded engine, for minutes on two cores.",
    overrides=("experiment=smoke_cpu",),
)
GPU = Profile(
    name="gpu",
    model="Qwen2.5-Coder-1.5B-Instruct",
    reason="GPUs of 20 to 70 GiB: adapters of 1.5B, engine and policy in turn on each.",
    overrides=(
        "experiment=agenthands_h100x1",
        "model.lora.rank=32",
        "model.lora.alpha=64",
        "optimizer.lr=1.0e-5",
        "model.logprob_chunk_tokens=1024",
        "trainer.micro_batch_tokens=8192",
    ),
)
WORKSTATION = Profile(
    name="workstation",
    model="Qwen2.5-Coder-1.5B-Instruct",
    reason="One to seven cards of 70 GiB or more: all weights of 1.5B, engine and policy in turn on each.",
    overrides=("experiment=agenthands_h100x1",),
)
H100X8 = Profile(
    name="h100x8",
    model="Qwen2.5-Coder-32B-Instruct",
    reason="Eight cards of 70 GiB or more: adapters of 32B, sharded over all of them.",
    overrides=("experiment=agenthands_h100x8",),
)
PROFILES = {profile.name: profile for profile in (CPU_ONLY, GPU, WORKSTATION, H100X8)}
NAMES = (*PROFILES, AUTO)
_LARGE_GIB = 70.0
_SMALL_GIB = 20.0
_NODE = 8


def resolve(name: str, hardware: Hardware) -> Profile:
    """Return a profile; `auto` is the largest that the machine has room for.

    Args:
        name: One of `NAMES`.
        hardware: From `hardware.look`.

    Raises:
        ConfigError: There is no such profile.
    """
    if name == AUTO:
        return _largest(hardware)
    if name not in PROFILES:
        raise ConfigError(f"--profile must be one of {', '.join(NAMES)}, got {name!r}. Pick one of them")
    return PROFILES[name]


def overrides_of(profile: Profile, hardware: Hardware) -> list[str]:
    """Return a profile's overrides, fitted to the cores and GPUs of the machine."""
    return [*profile.overrides, *(text for fit in _FITS for text in fit(profile, hardware))]


def _largest(hardware: Hardware) -> Profile:
    cards = hardware.gpus.cards
    if not cards or min(card.memory_mib for card in cards) < _SMALL_GIB * 1024:
        return CPU_ONLY
    if min(card.memory_mib for card in cards) < _LARGE_GIB * 1024:
        return GPU
    return H100X8 if len(cards) >= _NODE else WORKSTATION


def _judges(profile: Profile, hardware: Hardware) -> list[str]:
    """Not more judges than cores: on GPUs the preset's own, on fewer cores fewer."""
    if profile is CPU_ONLY:
        return []
    most = 16 if profile is H100X8 else 4
    number = max(1, min(most, hardware.cpu.num_cores // 2))
    if number == most:
        return []
    return [f"cluster.num_environment_workers={number}", f"cluster.num_reward_workers={number}"]


def _several_cards(profile: Profile, hardware: Hardware) -> list[str]:
    """One to seven cards: a policy rank and an engine on each."""
    number = len(hardware.gpus.cards)
    if profile not in (GPU, WORKSTATION) or number < 2:
        return []
    return [f"cluster.{key}={number}" for key in ("num_gpus_per_node", "num_policy_ranks", "num_engines")]


_FITS: tuple[Callable[[Profile, Hardware], list[str]], ...] = (_several_cards, _judges)

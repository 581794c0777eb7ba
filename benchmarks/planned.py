"""What `skyrl-nat plan` says of a run of the story family, from the run's own overrides and on this machine's card."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from skyrl_nat.config.cluster import Placement
from skyrl_nat.config.load import load_config
from skyrl_nat.config.run import RunConfig
from skyrl_nat.planning.hardware import look
from skyrl_nat.planning.model_shape import find_decoder
from skyrl_nat.planning.plan import Estimate, Setting, estimate, num_gpus
from skyrl_nat.planning.rates import Machine
from skyrl_nat.planning.recommend import Layout, layouts
from skyrl_nat.planning.workload import Workload

NUM_STEPS = 13
"""Simulated."""
STORY_PROMPT = 47
"""Tokens of the story family's prompt."""


def story(tokens: float, *, longest: float = 256, spread: float = 0.2) -> dict[str, float]:
    """Return lengths on the story family; its rollouts mostly have all their tokens."""
    return {"prompt_tokens": STORY_PROMPT, "sampled_tokens": tokens, "longest_tokens": longest, "spread": spread}


def plan(config: RunConfig, model: str, machine: Machine, lengths: Mapping[str, float]) -> tuple[Setting, Estimate]:
    """Return what a config was planned for, and what it needs.

    Args:
        config: The run.
        model: A folder, or the name of a known size.
        machine: What its cards are.
        lengths: Of its rollouts, as `Workload` takes them.
    """
    setting = Setting(decoder=find_decoder(model), machine=machine, workload=Workload(**lengths), num_steps=NUM_STEPS)
    return setting, estimate(config, setting)


def planned(overrides: Sequence[str], lengths: Mapping[str, float]) -> dict[str, Any]:
    """Return GiB of the fullest card by phase and part, seconds of a step by stage, and the layout to recommend.

    Args:
        overrides: All of the run's.
        lengths: Of its rollouts.
    """
    config = load_config(overrides)
    setting, found = plan(config, config.model.path, look().machine, lengths)
    phases = found.gpus and {name: getattr(found.gpus, name).parts for name in ("training", "rollout", "push")}
    best = layouts(config, setting, num_gpus(config)) if num_gpus(config) else []
    return {
        "machine": setting.machine.name,
        "peak_gib": found.peak_gib,
        "phases_gib": phases,
        "seconds": asdict(found.seconds),
        "recommended": name_of(best[0]) if best else None,
    }


def name_of(layout: Layout) -> str:
    """Return a layout as `6+2-s1`: cards of engines, cards of the policy, staleness; or `colocated`."""
    cluster = layout.config.cluster
    if cluster.placement is Placement.colocated:
        return str(cluster.placement)
    ranks = cluster.num_policy_ranks
    return f"{layout.num_gpus - ranks}+{ranks}-s{layout.config.trainer.staleness}"

"""Settings that cannot run, refused with the line that would let them."""

import itertools
from collections.abc import Iterator
from typing import Any

from skyrl_nat.config.cluster import Device, Placement
from skyrl_nat.config.model import Offload
from skyrl_nat.config.run import RunConfig
from skyrl_nat.errors import ConfigError
from skyrl_nat.planning.changes import Change, as_overrides, changed
from skyrl_nat.planning.memory import ENGINE_WORK_GIB, GpuMemory, cpu_memory, engine_memory, gpu_memory
from skyrl_nat.planning.model_shape import Decoder
from skyrl_nat.planning.rates import Machine

USABLE = 0.96
"""Of a card's memory: the rest is lost between pieces."""
_STEP = 0.05
"""Of `engine.gpu_memory_fraction`."""


def check(config: RunConfig, decoder: Decoder, machine: Machine, *, num_micro_batches: int = 2) -> None:
    """Refuse what cannot run.

    Args:
        config: Checked by itself already.
        decoder: Sizes of its model.
        machine: What its GPUs are, or the machine itself.
        num_micro_batches: Of one rank in an optimizer step.

    Raises:
        ConfigError: With what must hold, what was found, and the line to change.
    """
    config.check_heads(decoder.num_heads)
    problem = find_problem(config, decoder, machine, num_micro_batches)
    if problem is not None:
        fix = find_fix(config, decoder, machine, num_micro_batches)
        raise ConfigError(f"{problem}. {fix}")


def fits(config: RunConfig, decoder: Decoder, machine: Machine, num_micro_batches: int = 2) -> bool:
    """Return whether a config can run."""
    return find_problem(config, decoder, machine, num_micro_batches) is None


def find_problem(config: RunConfig, decoder: Decoder, machine: Machine, num_micro_batches: int) -> str | None:
    """Return what does not fit, as a sentence without an end."""
    if config.cluster.device is Device.cpu:
        total = cpu_memory(config, decoder, num_micro_batches=num_micro_batches).total
        if total <= machine.capacity_gib:
            return None
        return (
            f"cluster.device=cpu must have {total:.1f} GiB of memory for this model and batch, "
            f"got {machine.capacity_gib:.1f}"
        )
    found = gpu_memory(config, decoder, machine.capacity_gib, num_micro_batches=num_micro_batches)
    return _engine_problem(config, decoder, machine, found) or _phase_problem(machine, found)


def _engine_problem(config: RunConfig, decoder: Decoder, machine: Machine, found: GpuMemory) -> str | None:
    engine = engine_memory(config, decoder, machine.capacity_gib)
    share = config.engine.gpu_memory_fraction * machine.capacity_gib
    if engine["KV cache"] <= 0:
        return (
            f"engine.gpu_memory_fraction must give an engine more than the {engine['engine weights']:.1f} GiB of its "
            f"weights and {ENGINE_WORK_GIB:.0f} GiB of work space, got {config.engine.gpu_memory_fraction:g} of "
            f"{machine.capacity_gib:.1f} GiB, {share:.1f} GiB"
        )
    longest = config.rollout.max_total_tokens
    if found.kv_tokens < longest:
        return (
            f"rollout.max_total_tokens must fit the KV cache of an engine ({found.kv_tokens:,} tokens in "
            f"{engine['KV cache']:.1f} GiB), got {longest:,}"
        )
    return None


def _phase_problem(machine: Machine, found: GpuMemory) -> str | None:
    room = machine.capacity_gib * USABLE
    for name, phase in (("training", found.training), ("the rollouts", found.rollout), ("the push", found.push)):
        if phase.total > room:
            largest = sorted(phase.parts.items(), key=lambda part: -part[1])[:3]
            named = ", ".join(f"{part} {size:.1f}" for part, size in largest)
            return (
                f"A {machine.name} must hold {phase.total:.1f} GiB in {name} ({named}), "
                f"and has {room:.1f} of {machine.capacity_gib:.1f} GiB to use"
            )
    return None


def find_fix(config: RunConfig, decoder: Decoder, machine: Machine, num_micro_batches: int) -> str:
    """Return the change that lets a config run: the cheapest single one, else the first of two, else several."""
    for change in _attempts(list(_candidates(config, decoder, machine))):
        try:
            found = changed(config, change)
        except ConfigError:
            continue
        if fits(found, decoder, machine, num_micro_batches):
            return f"Add {as_overrides(change)}"
    return "Take more GPUs, a smaller model, or a card with more memory"


def _attempts(candidates: list[Change]) -> Iterator[Change]:
    yield from candidates
    for first, second in itertools.combinations(candidates, 2):
        yield {**first, **second}
    together: dict[str, Any] = {}
    for change in candidates:
        if not set(change) & set(together):
            together |= change
            yield dict(together)


def _candidates(config: RunConfig, decoder: Decoder, machine: Machine) -> Iterator[Change]:
    """Yield changes in the order of what they cost."""
    model, cluster, rollout = config.model, config.cluster, config.rollout
    for tokens in (1024, 256):
        if model.logprob_chunk_tokens > tokens:
            yield {"model.logprob_chunk_tokens": tokens}
    if config.trainer.micro_batch_tokens > rollout.max_total_tokens:
        yield {"trainer.micro_batch_tokens": rollout.max_total_tokens}
    if not model.activation_checkpointing:
        yield {"model.activation_checkpointing": True}
    if cluster.device is Device.cuda:
        yield from _engine_candidates(config, decoder, machine)
        if model.activation_checkpointing and not model.activation_offload:
            yield {"model.activation_offload": True}
    size = model.sequence_parallel_size * 2
    if cluster.num_policy_ranks % size == 0 and decoder.num_heads % size == 0:
        yield {"model.sequence_parallel_size": size}
    if not model.lora.rank:
        yield {"model.lora.rank": 32}
    for part in (2, 4, 8):
        shorter = max(256, rollout.max_total_tokens // part)
        yield {
            "rollout.max_total_tokens": shorter,
            "rollout.max_new_tokens": min(rollout.max_new_tokens, shorter // 2),
            "trainer.micro_batch_tokens": shorter,
        }


def _engine_candidates(config: RunConfig, decoder: Decoder, machine: Machine) -> Iterator[Change]:
    cluster = config.cluster
    is_colocated = cluster.placement is Placement.colocated
    if is_colocated and not config.engine.sleep:
        yield {"engine.sleep": True}
    now = config.engine.gpu_memory_fraction
    for number in range(1, round(1 / _STEP)):
        # The nearest first, either way.
        for fraction in (now + number * _STEP, now - number * _STEP):
            if _STEP <= fraction < 0.96:
                yield {"engine.gpu_memory_fraction": round(fraction, 2)}
    if is_colocated:
        for offload in (Offload.optimizer, Offload.all):
            if config.model.offload is not offload and config.model.offload is not Offload.all:
                yield {"model.offload": offload}
    total = cluster.num_engines * cluster.num_gpus_per_engine
    for size in (2, 4, 8):
        if size > cluster.num_gpus_per_engine and total % size == 0 and decoder.num_heads % size == 0:
            yield {"cluster.num_gpus_per_engine": size, "cluster.num_engines": total // size}

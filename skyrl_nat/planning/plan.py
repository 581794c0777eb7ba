"""What a run will need: batch words, memory, seconds, money, and how its GPUs are best shared out."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from skyrl_nat.config.cluster import Device, Placement
from skyrl_nat.config.run import RunConfig
from skyrl_nat.planning.memory import GpuMemory, Memory, cpu_memory, gpu_memory
from skyrl_nat.planning.model_shape import Decoder
from skyrl_nat.planning.rates import Machine
from skyrl_nat.planning.roofline import Roofline
from skyrl_nat.planning.simulation import LoopResult, LoopShape, simulate
from skyrl_nat.planning.workload import Workload

NUM_STEPS = 6
"""Simulated for a plan."""
MOST_ROLLOUTS = 512
"""Simulated of a step; of a larger one a part is, on as large a part of the engines."""
_CORES_PER_GPU = 12
"""Of usual nodes, for verdicts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """Of one step, by stage."""

    rollout: float
    """The trainer's wait for rollouts and verdicts."""
    train: float
    push: float
    offload: float
    step: float
    """All of it, from the simulation of the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one config needs on one kind of machine."""

    gpus: GpuMemory | None
    """None without GPUs."""
    machine_memory: Memory | None
    """Of all processes of a machine without GPUs; None with them."""
    seconds: Seconds
    num_micro_batches: int
    """Of one rank in an optimizer step."""
    trained_tokens: float
    """Of a step."""
    loop: LoopResult

    @property
    def peak_gib(self) -> float:
        """Of the fullest GPU, or of the machine."""
        found = self.gpus or self.machine_memory
        assert found is not None
        return found.peak_gib if isinstance(found, GpuMemory) else found.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a config is planned for."""

    decoder: Decoder
    machine: Machine
    """What its GPUs are, or the machine itself."""
    workload: Workload
    num_steps: int = NUM_STEPS
    seed: int = 0


def num_gpus(config: RunConfig) -> int:
    """Return the GPUs that a run's processes hold; 0 on a CPU."""
    cluster = config.cluster
    if cluster.device is Device.cpu:
        return 0
    engines = cluster.num_engines // cluster.num_engines_per_gpu * cluster.num_gpus_per_engine
    if cluster.placement is Placement.colocated:
        return max(engines, cluster.num_policy_ranks)
    return engines + cluster.num_policy_ranks


def loop_shape(config: RunConfig, setting: Setting) -> LoopShape:
    """Return what is simulated of a config; of a large step a part."""
    roofline, work, cluster = _roofline(config, setting), setting.workload, config.cluster
    part = max(1.0, roofline.num_rollouts / MOST_ROLLOUTS)
    tasks = max(1, round(config.trainer.tasks_per_step / part))
    part = config.trainer.tasks_per_step / tasks
    engines = cluster.num_engines / part
    at_once = min(config.engine.max_num_seqs, _kv_sequences(config, setting))
    at_once = min(at_once, math.ceil(config.max_concurrent_rollouts / cluster.num_engines))
    judges = cluster.num_reward_workers * config.environment.sandbox.num_servers
    cores = _CORES_PER_GPU * cluster.num_nodes * cluster.num_gpus_per_node
    if cores:
        judges = min(judges, cores)
    return LoopShape(
        tasks_per_step=tasks,
        rollouts_per_task=config.trainer.rollouts_per_task,
        staleness=config.trainer.staleness,
        is_colocated=cluster.placement is Placement.colocated,
        num_engines=engines,
        num_sequences=at_once,
        decode=roofline.decode_step(),
        mean_tokens=work.sampled_tokens,
        longest_tokens=work.longest_tokens,
        spread=work.spread,
        turn_s=roofline.prefill_s() + work.reply_s,
        num_judges=max(1, round(judges / part)),
        verdict_s=work.verdict_s,
        train_s=roofline.train_s() + roofline.offload_s() + roofline.activation_offload_s(),
        push_s=roofline.push_s(),
    )


def estimate(config: RunConfig, setting: Setting) -> Estimate:
    """Return what a config needs; nothing is refused here (`refusals.py`)."""
    roofline, shape = _roofline(config, setting), loop_shape(config, setting)
    loop = simulate(shape, num_steps=setting.num_steps, seed=setting.seed)
    is_gpu = config.cluster.device is Device.cuda
    number = roofline.num_micro_batches
    waited = loop.waited_s[1:] or loop.waited_s
    return Estimate(
        gpus=gpu_memory(config, setting.decoder, setting.machine.capacity_gib, num_micro_batches=number)
        if is_gpu
        else None,
        machine_memory=None if is_gpu else cpu_memory(config, setting.decoder, num_micro_batches=number),
        seconds=Seconds(
            rollout=sum(waited) / len(waited),
            train=roofline.train_s(),
            push=roofline.push_s(),
            offload=roofline.offload_s() + roofline.activation_offload_s(),
            step=loop.mean_step_s,
        ),
        num_micro_batches=number,
        trained_tokens=roofline.trained_tokens,
        loop=loop,
    )


def to_dict(config: RunConfig, setting: Setting, found: Estimate, *, num_tasks: int, price: float) -> dict[str, Any]:
    """Return a plan as plain data.

    Args:
        config: The run.
        setting: What it was planned for.
        found: From `estimate`.
        num_tasks: In the training set.
        price: Of one GPU for an hour; without GPUs of the machine.
    """
    steps, gpus = config.total_steps(num_tasks), num_gpus(config)
    hours = steps * found.seconds.step / 3600
    memory: dict[str, Any] = {"capacity_gib": setting.machine.capacity_gib, "peak_gib": found.peak_gib}
    if found.gpus is not None:
        phases = {"training": found.gpus.training, "rollout": found.gpus.rollout, "push": found.gpus.push}
        longest = config.rollout.max_total_tokens
        memory |= {
            "phases_gib": {name: phase.parts for name, phase in phases.items()},
            "kv_tokens_per_engine": found.gpus.kv_tokens,
            "longest_rollouts_per_engine": found.gpus.kv_tokens // longest,
        }
    elif found.machine_memory is not None:
        memory["phases_gib"] = {"all processes": found.machine_memory.parts}
    return {
        "config": config.to_dict(),
        "batch_plan": {
            **config.batch_plan(num_tasks),
            "micro-batches per rank and optimizer step": found.num_micro_batches,
            "trained tokens per step": round(found.trained_tokens),
        },
        "model": {"parameters": setting.decoder.num_parameters, **asdict(setting.decoder)},
        "machine": {"name": setting.machine.name, "gpus": gpus},
        "workload": asdict(setting.workload),
        "memory": memory,
        "seconds": asdict(found.seconds),
        "staleness": {"bound": config.trainer.staleness, "found_at_most": max(found.loop.staleness)},
        "run": {"hours": hours, "cost": hours * price * max(1, gpus), "price_per_hour": price},
    }


def _roofline(config: RunConfig, setting: Setting) -> Roofline:
    return Roofline(config, setting.decoder, setting.machine, setting.workload)


def _kv_sequences(config: RunConfig, setting: Setting) -> int:
    """Return how many rollouts of usual length one engine has keys and values for; at least one."""
    if config.cluster.device is Device.cpu:
        return config.engine.max_num_seqs
    tokens = gpu_memory(config, setting.decoder, setting.machine.capacity_gib).kv_tokens
    return max(1, int(tokens / setting.workload.total_tokens))

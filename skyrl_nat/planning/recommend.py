"""How a number of GPUs is best shared out between engines and policy, and how far rollouts may run ahead."""

from collections.abc import Iterator
from dataclasses import dataclass

from skyrl_nat.config.algorithm import OldLogprobs
from skyrl_nat.config.cluster import Placement, Transport
from skyrl_nat.config.model import Offload
from skyrl_nat.config.run import RunConfig
from skyrl_nat.errors import ConfigError
from skyrl_nat.planning.changes import Change, as_overrides, changed
from skyrl_nat.planning.plan import Estimate, Setting, estimate
from skyrl_nat.planning.refusals import fits

SHARES = (0.125, 0.25, 0.5, 0.75)
"""Of all GPUs that the policy may get, where engines have cards of their own."""
STALENESS = (1, 2)
USUAL_NODE = 8
"""GPUs of one."""
_ENGINE_SIZES = (1, 2, 4, 8)
_APART_FRACTION = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way to share out GPUs, and what it brings."""

    change: Change
    config: RunConfig
    estimate: Estimate
    num_gpus: int

    @property
    def overrides(self) -> str:
        """What makes a run of this layout."""
        return as_overrides(self.change)

    @property
    def rollouts_per_s(self) -> float:
        """That are played and trained."""
        trainer = self.config.trainer
        return trainer.tasks_per_step * trainer.rollouts_per_task / self.estimate.seconds.step

    @property
    def waiting_share(self) -> float:
        """Of a step: the policy waits for rollouts."""
        return self.estimate.seconds.rollout / self.estimate.seconds.step


def layouts(config: RunConfig, setting: Setting, num_gpus: int) -> list[Layout]:
    """Return the layouts of so many GPUs that fit, the fastest first.

    Args:
        config: Of a GPU run.
        setting: What it is planned for.
        num_gpus: In all.
    """
    found = []
    for change in _changes(config, num_gpus):
        try:
            each = changed(config, change)
            each.check_heads(setting.decoder.num_heads)
        except ConfigError:
            continue
        if fits(each, setting.decoder, setting.machine):
            found.append(Layout(change=change, config=each, estimate=estimate(each, setting), num_gpus=num_gpus))
    fastest = sorted(found, key=lambda layout: layout.estimate.seconds.step)
    # Within 2 % the fresher policy is worth more.
    best = [layout for layout in fastest if layout.estimate.seconds.step <= 1.02 * fastest[0].estimate.seconds.step]
    best.sort(key=lambda layout: layout.config.trainer.staleness)
    return best + fastest[len(best) :]


def _changes(config: RunConfig, num_gpus: int) -> Iterator[Change]:
    """Yield every layout of so many GPUs as changes."""
    per_node = min(max(config.cluster.num_gpus_per_node, USUAL_NODE), num_gpus)
    base = {"cluster.num_gpus_per_node": per_node, "cluster.num_nodes": -(-num_gpus // per_node)}
    for size in _ENGINE_SIZES:
        if num_gpus % size == 0:
            yield {
                **base,
                "cluster.placement": Placement.colocated,
                "weight_sync.transport": Transport.ipc,
                "cluster.num_policy_ranks": num_gpus,
                "cluster.num_engines": num_gpus // size,
                "cluster.num_gpus_per_engine": size,
                "cluster.num_engines_per_gpu": 1,
                "trainer.staleness": 0,
            }
    for share in SHARES:
        trainer = max(1, round(num_gpus * share))
        for size in _ENGINE_SIZES:
            engines = num_gpus - trainer
            if engines < size or engines % size:
                continue
            for staleness in STALENESS:
                yield {
                    **base,
                    "cluster.placement": Placement.disaggregated,
                    "weight_sync.transport": Transport.nccl,
                    "cluster.num_policy_ranks": trainer,
                    "cluster.num_engines": engines // size,
                    "cluster.num_gpus_per_engine": size,
                    "cluster.num_engines_per_gpu": 1,
                    "engine.gpu_memory_fraction": _APART_FRACTION,
                    "model.offload": Offload.none,
                    "trainer.staleness": staleness,
                    **_ratio(config),
                }


def _ratio(config: RunConfig) -> Change:
    """Return what corrects for a policy that has moved on, where the objective has a ratio."""
    if config.algorithm.reads_ratio and config.algorithm.old_logprobs is OldLogprobs.current:
        return {"algorithm.old_logprobs": OldLogprobs.rollout}
    return {}

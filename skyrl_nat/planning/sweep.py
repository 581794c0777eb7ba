"""Cluster shapes beside each other: the best layouts of 1 to 1,024 GPUs, by simulation of the loop with failures."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from skyrl_nat.config.cluster import Placement
from skyrl_nat.config.run import RunConfig
from skyrl_nat.errors import ConfigError
from skyrl_nat.planning.changes import changed
from skyrl_nat.planning.plan import Setting, estimate
from skyrl_nat.planning.recommend import Layout, layouts
from skyrl_nat.planning.simulation import Failures, LongRun, long_run

NUM_STEPS = 40
"""Simulated of every layout that is shown."""
HOURS = 720.0
"""Of the run whose failures are simulated: a month."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """The best layout of one kind on a number of GPUs."""

    layout: Layout
    month: LongRun
    """With failures."""
    price: float

    @property
    def rollouts_per_s(self) -> float:
        """Played and trained, over the month."""
        trainer = self.layout.config.trainer
        return trainer.tasks_per_step * trainer.rollouts_per_task / self.month.kept_step_s

    @property
    def cost_per_1000(self) -> float:
        """Of a thousand rollouts, played and trained."""
        return self.layout.num_gpus * self.price / 3600 / self.rollouts_per_s * 1000

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        found = self.layout.estimate
        return {
            "gpus": self.layout.num_gpus,
            "placement": str(self.layout.config.cluster.placement),
            "policy_ranks": self.layout.config.cluster.num_policy_ranks,
            "engines": self.layout.config.cluster.num_engines,
            "staleness": self.layout.config.trainer.staleness,
            "tasks_per_step": self.layout.config.trainer.tasks_per_step,
            "peak_gib": found.peak_gib,
            "step_s": found.seconds.step,
            "rollouts_per_s": self.rollouts_per_s,
            "waiting_share": self.layout.waiting_share,
            "failures_a_month": self.month.num_failures,
            "lost_steps_a_month": self.month.num_lost_steps,
            "cost_per_1000_rollouts": self.cost_per_1000,
            "overrides": self.layout.overrides,
        }


def sizes(most: int) -> list[int]:
    """Return powers of two up to a number of GPUs."""
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]


def sweep(
    config: RunConfig, setting: Setting, *, most: int, price: float, is_batch_scaled: bool = False
) -> list[SweepRow]:
    """Return the best colocated layout and the best with engines apart for each number of GPUs, where any fits.

    Args:
        config: Of a GPU run.
        setting: What it is planned for.
        most: GPUs at most.
        price: Of one GPU for an hour.
        is_batch_scaled: Give every GPU as many tasks per step as the config gives its own.

    Raises:
        ConfigError: Nothing fits.
    """
    rows = [row for each in _configs(config, most, is_batch_scaled) for row in _best(*each, setting, price)]
    if not rows:
        raise ConfigError(
            f"the model must fit one of the shapes up to {most} GPUs, none holds it. Raise --max-gpus, or add "
            "model.lora.rank=32"
        )
    return rows


def _configs(config: RunConfig, most: int, is_batch_scaled: bool) -> Iterator[tuple[RunConfig, int]]:
    own = config.cluster.num_nodes * config.cluster.num_gpus_per_node
    for size in sizes(most):
        tasks = config.trainer.tasks_per_step
        if is_batch_scaled:
            updates = config.trainer.updates_per_batch
            tasks = max(1, round(tasks * size / own / updates)) * updates
        yield changed(config, {"trainer.tasks_per_step": tasks}), size


def _best(config: RunConfig, size: int, setting: Setting, price: float) -> Iterator[SweepRow]:
    found = layouts(config, setting, size)
    for placement in Placement:
        own = [layout for layout in found if layout.config.cluster.placement is placement]
        for layout in own[:1]:
            longer = estimate(layout.config, replace(setting, num_steps=NUM_STEPS))
            failures = Failures(steps_per_checkpoint=config.checkpoint.every_steps or Failures().steps_per_checkpoint)
            month = long_run(longer.loop, failures, num_gpus=size, hours=HOURS, seed=setting.seed)
            yield SweepRow(layout=replace(layout, estimate=longer), month=month, price=price)

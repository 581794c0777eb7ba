"""All that the rules and the page look at: figures of the steps, and counts of the rollouts."""

from dataclasses import dataclass
from functools import cached_property

from skyrl_nat.environments.registry import visible_parts
from skyrl_nat.evaluation.analysis.reading import RunRecord
from skyrl_nat.evaluation.analysis.rollout_table import PartWeights, part_weights
from skyrl_nat.evaluation.analysis.series import Series, Trend, trend_of
from skyrl_nat.evaluation.analysis.tally import Tally

REWARD = "rollout/reward/mean"
SUCCESS = "rollout/success/mean"


@dataclass(frozen=True)
class PartChange:
    """What a part of the reward has to do with its change."""

    name: str
    trend: Trend
    weight: float | None
    """What one unit of it adds to the total; None where the parts do not make up the total."""
    is_hidden: bool
    """Whether it is measured on hidden tests, as its family says; False where the family does not say."""

    @property
    def contribution(self) -> float | None:
        """What its change adds to the total's."""
        return None if self.weight is None else self.weight * self.trend.change


@dataclass(frozen=True)
class Material:
    """A run, read."""

    record: RunRecord
    train: Tally
    held_out: Tally

    def trend(self, metric: str) -> Trend:
        """Return how a metric of the trained steps changes."""
        return trend_of(self.record.series(metric))

    @cached_property
    def reward(self) -> Trend:
        """Of training."""
        return self.trend(REWARD)

    @cached_property
    def success(self) -> Trend:
        """Of training."""
        return self.trend(SUCCESS)

    def evaluated(self, figure: str) -> Series:
        """Return `reward` or `success` of the held-out tasks by step."""
        return Series.of({result.step: getattr(result, figure) for result in self.record.evaluations})

    @cached_property
    def gap(self) -> Series:
        """Training reward since the evaluation before, less the held-out reward, by step of the evaluation."""
        trained, found, begin = self.record.series(REWARD), {}, 0.0
        for step, held_out in self.evaluated("reward").to_dict().items():
            since = trained.values[(trained.steps > begin) & (trained.steps <= step)]
            if len(since):
                found[step] = float(since.mean()) - held_out
            begin = step
        return Series.of(found)

    @cached_property
    def weights(self) -> PartWeights:
        """Of the reward's parts."""
        return part_weights(self.train.table)

    @cached_property
    def parts(self) -> list[PartChange]:
        """Parts of the reward, what adds most to its change first."""
        weights = self.weights.weights if self.weights.is_good else {}
        visible = [visible_parts(family) for family in self.train.table.families]
        changes = [
            PartChange(
                name,
                self.trend(f"reward/{name}/mean"),
                weights.get(name),
                is_hidden=all(names is not None and name not in names for names in visible),
            )
            for name in self.train.table.parts
        ]
        return sorted(changes, key=lambda part: (-abs(part.contribution or 0.0), part.name))

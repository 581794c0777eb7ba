"""From reward parts to one number: a weighted mean with the breakdown kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skyrl_nat.errors import ConfigError
from skyrl_nat.types import RewardResult, StageReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """Weights of the parts of one family."""

    weights: dict[str, float]
    """Name -> weight >= 0; divided by the sum over the parts that a task has."""

    def score(
        self,
        parts: Mapping[str, float],
        *,
        findings: Sequence[str] = (),
        suspicions: Sequence[str] = (),
        stages: Sequence[StageReport] = (),
    ) -> RewardResult:
        """Return `sum(w_i * r_i) / sum(w_i)` over the parts given.

        A part that a task has not, such as error cases of a tool without errors, is left out of both
        sums; all answers to one task have the same parts, so rewards of a group stay comparable.

        Args:
            parts: Name -> value in [0, 1].
            findings: What was wrong, most important first.
            suspicions: Signs of cheating.
            stages: The checks that were made.

        Raises:
            ValueError: A part has no weight, is outside [0, 1], or all weights are 0.
        """
        unknown = sorted(set(parts) - set(self.weights))
        outside = {name: value for name, value in parts.items() if not 0.0 <= value <= 1.0}
        if unknown or outside:
            raise ValueError(f"reward parts must have a weight and be in [0, 1]; unknown {unknown}, outside {outside}")
        total_weight = sum(self.weights[name] for name in parts)
        if total_weight <= 0:
            raise ValueError(f"the weights of the parts {sorted(parts)} must not all be 0")
        total = sum(self.weights[name] * value for name, value in parts.items()) / total_weight
        return RewardResult(
            total=total,
            parts=dict(parts),
            is_success=all(value == 1.0 for name, value in parts.items() if self.weights[name] > 0),
            findings=list(findings),
            suspicions=list(suspicions),
            stages=list(stages),
        )


def make_rubric(defaults: Mapping[str, float], overrides: Mapping[str, float]) -> Rubric:
    """Return a rubric of a family's own weights, some of them overridden by the config.

    Raises:
        ConfigError: An override names no part of the family, or all weights are 0.
    """
    unknown = sorted(set(overrides) - set(defaults))
    if unknown:
        raise ConfigError(
            f"environment.reward_weights must name parts of the family ({', '.join(defaults)}), got "
            f"{', '.join(unknown)}. Remove or rename them"
        )
    weights = {**defaults, **overrides}
    if sum(weights.values()) <= 0:
        raise ConfigError("environment.reward_weights must leave one weight above 0, got none. Raise one")
    return Rubric(weights=weights)

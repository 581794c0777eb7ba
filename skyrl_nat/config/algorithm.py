"""The objective: names of pure functions in `skyrl_nat.algorithms` and their constants."""

from dataclasses import dataclass
from enum import StrEnum

from skyrl_nat.config.checks import require, require_finite, require_not_negative


class Advantage(StrEnum):
    """Keys of `algorithms.advantages.ADVANTAGES`."""

    grpo = "grpo"
    dr_grpo = "dr_grpo"
    rloo = "rloo"


class PolicyLoss(StrEnum):
    """Keys of `algorithms.losses.POLICY_LOSSES`."""

    ppo_clip = "ppo_clip"
    gspo = "gspo"
    cispo = "cispo"
    reinforce = "reinforce"


class Reduction(StrEnum):
    """Keys of `algorithms.reduction.REDUCTIONS`."""

    token_mean = "token_mean"
    sequence_mean = "sequence_mean"
    sequence_mean_token_sum = "sequence_mean_token_sum"
    prompt_mean = "prompt_mean"


class KlEstimator(StrEnum):
    """Keys of `algorithms.kl.KL_ESTIMATORS`."""

    k1 = "k1"
    k2 = "k2"
    k3 = "k3"


class OldLogprobs(StrEnum):
    """Where the denominator of the ratio comes from."""

    recompute = "recompute"
    """The trainer's own log-probs before the first update of the batch: the ratio starts at exactly 1."""
    rollout = "rollout"
    """The engine's log-probs at sampling: the ratio also corrects for engine and staleness differences."""


@dataclass(kw_only=True, slots=True)
class AlgorithmConfig:
    """Section `algorithm`; a preset in `conf/algorithm/` is a few lines of it."""

    name: str = "grpo"
    """Only for logs."""
    advantage: Advantage = Advantage.grpo
    policy_loss: PolicyLoss = PolicyLoss.ppo_clip
    reduction: Reduction = Reduction.token_mean
    old_logprobs: OldLogprobs = OldLogprobs.recompute
    clip_low: float = 0.2
    """How far the ratio may fall below 1 before its gradient stops; in (0, 1)."""
    clip_high: float = 0.2
    """How far the ratio may rise above 1; at least `clip_low`."""
    dual_clip: float = 0.0
    """Bound of the loss for negative advantages, as a multiple of |A|; > 1, or 0 for off."""
    kl_coefficient: float = 0.0
    """Weight of the KL term in the loss; 0 means that no reference worker is started."""
    kl_estimator: KlEstimator = KlEstimator.k2
    """k2's gradient is that of KL(policy || reference); k3's is that of the reverse; k1's is zero in expectation."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus; 0 leaves entropy a metric."""
    max_tokens_divisor: int = 1024
    """Constant divisor of `sequence_mean_token_sum` (Dr. GRPO): never taken from the batch."""
    tis_cap: float = 0.0
    """Upper bound of trainer/rollout importance weights per token (truncated importance sampling); 0 for off."""
    mask_truncated: bool = False
    """Leave truncated rollouts out of the loss (DAPO's overlong filtering); they keep their metrics."""

    def __post_init__(self) -> None:
        require_finite(self, "algorithm")
        require_not_negative(self, "algorithm", "dual_clip", "kl_coefficient", "entropy_coefficient", "tis_cap")
        require(
            0 < self.clip_low < 1,
            "algorithm.clip_low",
            "be in (0, 1)",
            self.clip_low,
            "Set it to 0.2 for plain PPO clipping.",
        )
        require(
            self.clip_high >= self.clip_low,
            "algorithm.clip_high",
            f"be >= algorithm.clip_low ({self.clip_low})",
            self.clip_high,
            "Set both to 0.2 for plain PPO clipping.",
        )
        require(
            self.dual_clip == 0 or self.dual_clip > 1,
            "algorithm.dual_clip",
            "be > 1, or 0 for off",
            self.dual_clip,
            "The usual value is 3.",
        )
        require(
            self.max_tokens_divisor >= 1,
            "algorithm.max_tokens_divisor",
            "be >= 1",
            self.max_tokens_divisor,
            "Set it to the longest completion allowed.",
        )

    @property
    def needs_reference(self) -> bool:
        """True where a reference worker must exist."""
        return self.kl_coefficient > 0

    @property
    def needs_old_logprobs(self) -> bool:
        """True where the trainer must recompute log-probs before the first update of a batch."""
        return self.old_logprobs is OldLogprobs.recompute

"""The objective: names of pure functions in `skyrl_nat.algorithms` and their constants."""

from dataclasses import dataclass
from enum import StrEnum

from skyrl_nat.config.checks import coerce_enums, require, require_finite, require_not_negative, require_positive


class Advantage(StrEnum):
    """Keys of `algorithms.advantages.ADVANTAGES`."""

    grpo = "grpo"
    """Rewards minus the group's mean, divided by its sample standard deviation."""
    dr_grpo = "dr_grpo"
    """Rewards minus the group's mean, not divided."""
    rloo = "rloo"
    """Each reward minus the mean of the others of its group."""
    maxrl = "maxrl"
    """Rewards minus the group's mean, divided by that mean; needs rewards that are not negative."""
    reinforce = "reinforce"
    """The rewards themselves, as a discounted reward to go; meant for `whiten_advantages`."""


class PolicyLoss(StrEnum):
    """Keys of `algorithms.losses.POLICY_LOSSES`."""

    ppo_clip = "ppo_clip"
    """The clipped surrogate per token, dual-clipped where `dual_clip` is set."""
    gspo = "gspo"
    """The clipped surrogate with one ratio per sequence."""
    cispo = "cispo"
    """The clipped ratio is a constant weight, so that clipped tokens keep their gradient."""
    sapo = "sapo"
    """The ratio passes a soft gate; nothing is clipped."""
    clip_cov = "clip_cov"
    """`ppo_clip` without the gradient of some tokens of high covariance."""
    kl_cov = "kl_cov"
    """The surrogate without a clip, plus a penalty on the tokens of highest covariance."""
    importance_sampling = "importance_sampling"
    """Ratio times advantage, nothing clipped."""
    reinforce = "reinforce"
    """Log-prob times advantage: no ratio, nothing clipped."""
    cross_entropy = "cross_entropy"
    """Supervised fine-tuning on recorded rollouts; advantages are not read."""
    kto = "kto"
    """Kahneman-Tversky's loss of recorded rollouts, against a reference."""


class Reduction(StrEnum):
    """Keys of `algorithms.reduction.REDUCTIONS`."""

    token_mean = "token_mean"
    """Every loss token of the optimizer step counts the same."""
    sequence_mean = "sequence_mean"
    """Every rollout counts the same."""
    sequence_mean_token_sum = "sequence_mean_token_sum"
    """A rollout's sum of tokens divided by `max_tokens_divisor`, then the mean over rollouts."""
    prompt_mean = "prompt_mean"
    """Every group counts the same."""


class KlEstimator(StrEnum):
    """Keys of `algorithms.kl.KL_ESTIMATORS`."""

    k1 = "k1"
    """The log-ratio: unbiased, may be negative; for the reward."""
    k2 = "k2"
    """Half its square: biased as a value, right as a loss."""
    k3 = "k3"
    """exp(-d) - 1 + d of the log-ratio d: unbiased, never negative."""
    abs = "abs"
    """Its absolute value: biased, never negative."""


class OldLogprobs(StrEnum):
    """Where the denominator of the ratio comes from."""

    current = "current"
    """The detached log-probs of the training pass itself: no pass of its own, ratio exactly 1; one update per batch."""
    recompute = "recompute"
    """A pass of the trainer before the first update of the batch: the ratio starts at 1 and moves with the updates."""
    rollout = "rollout"
    """The engine's log-probs at sampling: the ratio also corrects for engine and staleness differences."""


class Correction(StrEnum):
    """`none`, or a key of `algorithms.off_policy.CORRECTIONS`."""

    none = "none"
    """No correction."""
    token_tis = "token_tis"
    """Each token's trainer/rollout ratio, capped at `correction_high`."""
    sequence_tis = "sequence_tis"
    """The product of a sequence's ratios, capped at `correction_high`."""
    icepop = "icepop"
    """Each token's ratio within the bounds, else 0."""
    geometric_mask = "geometric_mask"
    """1 along sequences whose geometric mean ratio lies within the bounds, else 0."""
    product_mask = "product_mask"
    """The product of a sequence's ratios where it lies within the bounds, else 0."""


class DynamicSampling(StrEnum):
    """What happens to groups that teach nothing because all their rewards are equal."""

    off = "off"
    """They stay in the batch, with advantage 0."""
    filter = "filter"
    """They are left out (DAPO). A further task is played for each as soon as it is known to be flat, no more than are
    needed: nothing usable is thrown away."""
    replace = "replace"  # pyright: ignore[reportAssignmentType] - str has a method of that name
    """Other groups of the same batch stand in for them, drawn from the seed; nothing more is played."""


@dataclass(kw_only=True, slots=True)
class AlgorithmConfig:
    """Section `algorithm`; a preset in `conf/algorithm/` is a few lines of it."""

    name: str = "grpo"
    """Only for logs."""
    advantage: Advantage = Advantage.grpo
    """How rewards of a group become advantages; the offline losses read none."""
    policy_loss: PolicyLoss = PolicyLoss.ppo_clip
    """What is minimised for every token; it decides which of the constants below are read."""
    reduction: Reduction = Reduction.token_mean
    """How losses of tokens become one number, that is, which rollouts weigh more."""
    old_logprobs: OldLogprobs = OldLogprobs.current
    """Where the denominator of the ratio comes from, and so whether a batch costs a pass more."""
    whiten_advantages: bool = False
    """Centre and scale advantages over all loss tokens of the batch (REINFORCE++)."""
    gamma: float = 1.0
    """Discount per sampled token of `advantage=reinforce`; in (0, 1]."""

    clip_low: float = 0.2
    """How far the ratio may fall below 1 before its gradient stops; in (0, 1)."""
    clip_high: float = 0.2
    """How far the ratio may rise above 1; at least `clip_low`."""
    dual_clip: float = 0.0
    """Bound of the loss for negative advantages, as a multiple of |A|; > 1, or 0 for off."""
    tau_positive: float = 1.0
    """Temperature of `sapo`'s gate where the advantage is positive."""
    tau_negative: float = 1.05
    """The same where it is not."""
    covariance_share: float = 0.0002
    """Share of the batch's tokens that `clip_cov` and `kl_cov` select."""
    covariance_low: float = 1.0
    """Range of covariances that `clip_cov` selects from."""
    covariance_high: float = 5.0
    """Upper end of that range; above `covariance_low`."""
    kl_cov_coefficient: float = 1.0
    """Weight of `kl_cov`'s penalty."""
    kto_beta: float = 0.1
    """Scale of `kto`'s log-ratios."""
    desirable_weight: float = 1.0
    """Weight of `kto`'s successful rollouts."""
    undesirable_weight: float = 1.0
    """Weight of the others."""

    kl_coefficient: float = 0.0
    """Weight of the KL term; 0 means that no reference worker is started."""
    kl_estimator: KlEstimator = KlEstimator.k2
    """As a loss: k2's gradient is that of KL(policy || reference), k3's that of the reverse; k1 has none. In the
    reward k1 is the exact one."""
    kl_in_reward: bool = False
    """Take the KL term from the advantages, as a reward to go, instead of adding it to the loss."""
    kl_importance_weighted: bool = False
    """Weight the KL loss with the ratio, its gradient included: exact for samples of an older policy."""
    kl_target: float = 0.0
    """KL in nats per loss token that the coefficient is steered to; 0 keeps the coefficient."""
    kl_horizon: int = 10000
    """Rollouts over which an error of 20 % or more moves the coefficient by 20 %."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus; 0 leaves entropy a metric, unless there is a target."""
    entropy_target: float = 0.0
    """Entropy in nats per loss token under which the bonus grows; 0 keeps the coefficient."""
    entropy_step: float = 0.001
    """By how much the bonus' coefficient moves per step when there is a target."""
    entropy_max_coefficient: float = 0.01
    """Largest coefficient that the target may ask for."""
    max_tokens_divisor: int = 1024
    """Constant divisor of `sequence_mean_token_sum` (Dr. GRPO): never taken from the batch."""

    correction: Correction = Correction.none
    """Weights for what the engine sampled with other log-probs than the trainer's."""
    correction_low: float = 0.5
    """Lower bound of trainer/rollout ratios of the masks."""
    correction_high: float = 2.0
    """Upper bound: cap of the truncated weights, and of the masks."""
    outlier_ratio: float = 0.0
    """Leave out sequences with a token whose trainer/rollout ratio is below this or above its inverse; 0 for off."""

    mask_truncated: bool = False
    """Leave truncated rollouts out of the loss (DAPO's overlong filtering); they keep their metrics."""
    overlong_buffer: int = 0
    """Tokens before `rollout.max_total_tokens` over which a penalty on length rises to 1; 0 for off."""
    overlong_penalty: float = 1.0
    """Weight of that penalty; it enters advantages, never a logged reward or a filter."""
    dynamic_sampling: DynamicSampling = DynamicSampling.off
    """What happens to groups that teach nothing because all their rewards are equal."""

    def __post_init__(self) -> None:
        coerce_enums(self)
        require_finite(self, "algorithm")
        self._check_ranges()
        self._check_kl()
        self._check_combinations()

    def _check_ranges(self) -> None:
        require_not_negative(
            self,
            "algorithm",
            "dual_clip",
            "kl_coefficient",
            "kl_target",
            "kl_cov_coefficient",
            "entropy_coefficient",
            "entropy_target",
            "correction_low",
            "desirable_weight",
            "undesirable_weight",
            "overlong_buffer",
            "overlong_penalty",
        )
        require_positive(
            self,
            "algorithm",
            "tau_positive",
            "tau_negative",
            "kto_beta",
            "kl_horizon",
            "entropy_step",
            "entropy_max_coefficient",
            "max_tokens_divisor",
        )
        self._check_bounds()

    def _check_bounds(self) -> None:
        _require_between(0 < self.clip_low < 1, "clip_low", "in (0, 1)", self.clip_low, "Set it to 0.2 for PPO's.")
        _require_between(0 < self.gamma <= 1, "gamma", "in (0, 1]", self.gamma, "Leave it at 1.")
        _require_between(
            0 <= self.covariance_share <= 1, "covariance_share", "in [0, 1]", self.covariance_share, "Use 0.0002."
        )
        _require_between(
            0 <= self.outlier_ratio < 1, "outlier_ratio", "in [0, 1)", self.outlier_ratio, "The usual value is 1e-4."
        )
        _require_between(
            self.clip_high >= self.clip_low,
            "clip_high",
            f">= algorithm.clip_low ({self.clip_low})",
            self.clip_high,
            "Set both to 0.2 for plain PPO clipping.",
        )
        _require_between(
            self.dual_clip == 0 or self.dual_clip > 1,
            "dual_clip",
            "> 1, or 0 for off",
            self.dual_clip,
            "The usual value is 3.",
        )
        _require_between(
            self.correction_high >= max(1.0, self.correction_low),
            "correction_high",
            f">= 1 and >= algorithm.correction_low ({self.correction_low})",
            self.correction_high,
            "The usual cap is 2.",
        )
        _require_between(
            self.covariance_high > self.covariance_low,
            "covariance_high",
            f"> algorithm.covariance_low ({self.covariance_low})",
            self.covariance_high,
            "The usual range is 1 to 5.",
        )

    def _check_kl(self) -> None:
        if self.kl_coefficient:
            estimator = self.kl_estimator
            require(
                (estimator is KlEstimator.k1) == self.kl_in_reward,
                "algorithm.kl_estimator",
                "be k1 with algorithm.kl_in_reward=true, and another one with false",
                str(estimator),
                "Use k2 as a loss, where k1 has no gradient; in the reward use k1, which alone gives the KL's.",
            )
        require(
            not self.kl_in_reward or (self.kl_coefficient > 0 and self.old_logprobs is not OldLogprobs.current),
            "algorithm.old_logprobs",
            "be recompute or rollout, and algorithm.kl_coefficient > 0, with algorithm.kl_in_reward=true",
            str(self.old_logprobs),
            "The penalty is known before the training pass: add algorithm.old_logprobs=recompute.",
        )
        require(
            not self.kl_target or self.kl_coefficient > 0,
            "algorithm.kl_coefficient",
            "be > 0 with algorithm.kl_target",
            self.kl_coefficient,
            "Give the coefficient to start from, for instance 0.01.",
        )

    def _check_combinations(self) -> None:
        require(
            self.correction is Correction.none or self.old_logprobs is not OldLogprobs.rollout,
            "algorithm.correction",
            "be none with algorithm.old_logprobs=rollout",
            str(self.correction),
            "The ratio already corrects for the engine; use one of the two.",
        )
        require(
            self.advantage is not Advantage.maxrl or not self.overlong_buffer,
            "algorithm.overlong_buffer",
            "be 0 with algorithm.advantage=maxrl",
            self.overlong_buffer,
            "MaxRL needs rewards that are not negative; use mask_truncated instead.",
        )
        is_sequence_loss = self.policy_loss in (PolicyLoss.gspo, PolicyLoss.kto)
        require(
            not is_sequence_loss or self.reduction is Reduction.sequence_mean,
            "algorithm.reduction",
            f"be sequence_mean with algorithm.policy_loss={self.policy_loss}",
            str(self.reduction),
            "Leave it at sequence_mean: the loss is one number per sequence, which others would weigh by length.",
        )

    @property
    def needs_reference(self) -> bool:
        """True where a reference worker must exist."""
        return self.kl_coefficient > 0 or self.policy_loss is PolicyLoss.kto

    @property
    def needs_old_logprobs(self) -> bool:
        """True where the trainer must compute log-probs before the first update of a batch."""
        return self.old_logprobs is OldLogprobs.recompute

    @property
    def is_group_relative(self) -> bool:
        """True where an advantage says how much better a rollout is than the others of its group."""
        return self.advantage is not Advantage.reinforce and not self.is_offline

    @property
    def is_offline(self) -> bool:
        """True where the loss learns from recorded rollouts, not from its own."""
        return self.policy_loss in (PolicyLoss.cross_entropy, PolicyLoss.kto)

    @property
    def reads_ratio(self) -> bool:
        """True where the loss compares the policy with the one that sampled."""
        return self.policy_loss not in (PolicyLoss.reinforce, PolicyLoss.cross_entropy, PolicyLoss.kto)


def _require_between(is_ok: bool, name: str, must_be: str, found: float, fix: str) -> None:
    """Refuse a number of the section that is out of its range."""
    require(is_ok, f"algorithm.{name}", f"be {must_be}", found, fix)

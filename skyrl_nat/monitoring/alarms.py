"""Signs that a run trains on wrong numbers, looked for after every step."""

from collections.abc import Mapping
from dataclasses import dataclass

from skyrl_nat.config.algorithm import OldLogprobs
from skyrl_nat.config.run import RunConfig


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing that should not be."""

    text: str
    """What must hold, what was found, what to do."""
    is_fatal: bool
    """True where the run must stop."""


def check_alarms(metrics: Mapping[str, float], config: RunConfig) -> list[Alarm]:
    """Return what is wrong with a step, by the thresholds in section `alarms`.

    Args:
        metrics: All of the step's.
        config: The run's.
    """
    found = [
        _first_ratio(metrics, config),
        _rollout_difference(metrics, config),
        _version_lag(metrics, config),
        _token_count(metrics, config),
        _no_signal(metrics, config),
        _reference_kl(metrics, config),
    ]
    return [alarm for alarm in found if alarm is not None]


def _first_ratio(metrics: Mapping[str, float], config: RunConfig) -> Alarm | None:
    limit = config.alarms.first_policy_kl
    value = abs(metrics.get("batch/first_policy_kl", 0.0))
    if config.algorithm.old_logprobs is not OldLogprobs.recompute or value <= limit:
        return None
    return Alarm(
        f"The policy must equal its own recomputed log-probs at the first update of a batch (KL <= {limit:g}), found "
        f"{value:.3g}. Look for dropout or kernels that are not deterministic, or raise alarms.first_policy_kl.",
        is_fatal=False,
    )


def _rollout_difference(metrics: Mapping[str, float], config: RunConfig) -> Alarm | None:
    value = metrics.get("batch/first_logprob_diff", 0.0)
    alarms = config.alarms
    # Tokens of an older version differ for a good reason.
    is_comparable = not config.environment.recorded_files and metrics.get("rollout/staleness/max", 0.0) <= 0
    if not is_comparable or not value > alarms.logprob_diff_warn:
        return None
    return Alarm(
        f"Engine and trainer must agree on log-probs (mean difference <= {alarms.logprob_diff_warn:g}, stop above "
        f"{alarms.logprob_diff_stop:g}), found {value:.3g}. Look at the precision of both, the weight push and the "
        "staleness, or set algorithm.correction=token_tis.",
        is_fatal=value > alarms.logprob_diff_stop,
    )


def _version_lag(metrics: Mapping[str, float], config: RunConfig) -> Alarm | None:
    lag = metrics.get("rollout/staleness/max", 0.0)
    if lag <= config.trainer.staleness:
        return None
    return Alarm(
        f"No token may be older than trainer.staleness ({config.trainer.staleness} versions), found {lag:g}. "
        "This is a fault of the trainer: report it with the run folder.",
        is_fatal=True,
    )


def _token_count(metrics: Mapping[str, float], config: RunConfig) -> Alarm | None:
    sampled, trained = metrics.get("batch/num_sampled_tokens", 0.0), metrics.get("batch/num_trained_tokens", 0.0)
    if sampled == trained:
        return None
    return Alarm(
        f"Exactly the sampled tokens of the batch must be trained on, {sampled:g} were sampled, {trained:g} trained. "
        "This is a fault of the trainer: report it with the run folder.",
        is_fatal=True,
    )


def _no_signal(metrics: Mapping[str, float], config: RunConfig) -> Alarm | None:
    share = metrics.get("batch/no_signal_groups", 0.0)
    if share <= config.alarms.no_signal_share:
        return None
    return Alarm(
        f"Groups with equal rewards teach nothing, {share:.0%} of this batch are such (alarms.no_signal_share is "
        f"{config.alarms.no_signal_share:.0%}). Use easier or harder tasks, more rollouts per task, or "
        "algorithm.dynamic_sampling=filter.",
        is_fatal=False,
    )


def _reference_kl(metrics: Mapping[str, float], config: RunConfig) -> Alarm | None:
    alarms, value = config.alarms, metrics.get("loss/token_kl", 0.0)
    limits = [limit for limit in (alarms.reference_kl_warn, alarms.reference_kl_stop) if limit is not None]
    if not limits or value <= min(limits):
        return None
    is_fatal = alarms.reference_kl_stop is not None and value > alarms.reference_kl_stop
    return Alarm(
        f"The policy must stay near its reference (KL <= {min(limits):g} nats per token), found {value:.3g}. Raise "
        "algorithm.kl_coefficient, lower optimizer.lr, or raise alarms.reference_kl_warn and alarms.reference_kl_stop.",
        is_fatal=is_fatal,
    )

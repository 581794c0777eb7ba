"""Is the training itself sound: lengths, entropy, distance to the reference, staleness, signal and time?"""

from skyrl_nat.evaluation.analysis.findings import Finding, Severity, interval
from skyrl_nat.evaluation.analysis.material import Material
from skyrl_nat.evaluation.analysis.series import Direction, Series, Trend, trend_of

LENGTH_DRIFT = 0.25
"""Relative change of the completions' length that is told: it costs or saves as much of the rollout time."""
CUT_OFF = 0.1
"""Share of turns cut off at the token limit: what they lack is judged as if the policy had left it out."""
ENTROPY_LEFT = 0.33
"""Of the first third's entropy: with less, the rollouts of a group become copies and groups lose their signal."""
ENTROPY_GROWN = 2.0
"""Times the first third's entropy: a policy that learns becomes surer, one that breaks becomes random."""
KL_FAR = 0.5
"""Nats per token: sampled tokens are on average e^0.5 = 1.6 times as probable as under the reference."""
CLIPPED = 0.2
"""Share of tokens whose gradient is cut off: healthy runs of PPO's clipping stay well under it."""
STALE = 2.0
"""Steps between sampling and training from which on the policy is corrected for what it no longer is."""
WITHOUT_SIGNAL = 0.5
"""Share of groups that teach nothing: from it on most generation is thrown away."""
DOMINATING = 0.6
"""Share of a step's time from which on only one phase is worth making faster."""


def length(material: Material) -> list[Finding]:
    """Say whether completions become longer or shorter, and whether they are cut off."""
    trend, cut = material.trend("rollout/completion_tokens/mean"), material.trend("rollout/length_finish/mean")
    found = []
    if trend.direction is not Direction.CANNOT_TELL and abs(trend.change) >= LENGTH_DRIFT * trend.early:
        is_paid = trend.direction is Direction.RISES and material.success.direction is not Direction.RISES
        sentence = (
            f"Completions become {'longer' if trend.change > 0 else 'shorter'}: from {trend.early:.4g} to "
            f"{trend.late:.4g} tokens (change {interval(trend.low, trend.high)})"
            + (", and success does not rise with them. Look for what pays for length." if is_paid else ".")
        )
        found.append(Finding("length", Severity.WARNING if is_paid else Severity.NOTE, sentence, trend.to_dict()))
    if cut.late >= CUT_OFF:
        sentence = f"{cut.late:.0%} of turns end at the token limit in the last third. Raise rollout.max_new_tokens."
        found.append(Finding("cut_off", Severity.WARNING, sentence, cut.to_dict()))
    return found


def entropy(material: Material) -> list[Finding]:
    """Say whether the policy becomes too sure, or random."""
    trend = material.trend("loss/token_entropy")
    change = f"from {trend.early:.3g} to {trend.late:.3g} nats per token (change {interval(trend.low, trend.high)})"
    if trend.direction is Direction.FALLS and trend.late < ENTROPY_LEFT * trend.early:
        sentence = f"The entropy collapses {change}. Raise algorithm.clip_high or algorithm.entropy_coefficient."
    elif trend.direction is Direction.RISES and trend.late > ENTROPY_GROWN * trend.early:
        sentence = f"The policy becomes random: its entropy grows {change}. Lower optimizer.lr."
    else:
        return []
    return [Finding("entropy", Severity.WARNING, sentence, trend.to_dict())]


def distance(material: Material) -> list[Finding]:
    """Say whether the policy is far from the reference."""
    trend = material.trend("loss/token_kl")
    if not trend.late > KL_FAR:
        return []
    sentence = (
        f"The policy is far from the reference: {trend.late:.3g} nats per token in the last third, "
        f"{trend.early:.3g} in the first. Raise algorithm.kl_coefficient, or lower optimizer.lr."
    )
    return [Finding("distance", Severity.WARNING, sentence, trend.to_dict())]


def clipping(material: Material) -> list[Finding]:
    """Say whether much of the gradient is cut off."""
    trend = material.trend("loss/clip_fraction")
    if not trend.late > CLIPPED:
        return []
    sentence = (
        f"{trend.late:.0%} of tokens are clipped in the last third. Lower optimizer.lr or trainer.updates_per_batch."
    )
    return [Finding("clipping", Severity.WARNING, sentence, trend.to_dict())]


def staleness(material: Material) -> list[Finding]:
    """Say whether the policy trains on what an older one sampled."""
    trend = material.trend("rollout/staleness/mean")
    if not trend.late > STALE:
        return []
    sentence = f"Tokens are {trend.late:.3g} steps old when they are trained. Lower trainer.staleness."
    return [Finding("staleness", Severity.NOTE, sentence, trend.to_dict())]


def without_signal(material: Material) -> Series:
    """Return the share of groups that teach nothing, by step."""
    signal = material.record.series("batch/signal_groups/share")
    return Series(signal.steps, 1 - signal.values)


def signal(material: Material) -> list[Finding]:
    """Say whether many groups teach nothing, and whether they are too easy or too hard."""
    trend = trend_of(without_signal(material))
    if not trend.late >= WITHOUT_SIGNAL:
        return []
    flat = list(material.train.table.flat_groups().values())
    num_groups, solved, failed = map(sum, zip(*flat[-max(1, len(flat) // 3) :], strict=True)) if flat else (0, 0, 0)
    reason = "too easy" if solved > failed else "too hard" if failed > solved else "alike"
    sentence = (
        f"{trend.late:.0%} of groups teach nothing in the last third: of {num_groups} recorded ones {solved} succeed "
        f"wholly and {failed} not at all, so tasks are mostly {reason}. "
        f"Take {'harder' if solved > failed else 'easier'} tasks, or algorithm.dynamic_sampling."
    )
    evidence = {**trend.to_dict(), "groups": num_groups, "all_succeed": solved, "none_succeeds": failed}
    return [Finding("signal", Severity.WARNING, sentence, evidence)]


def phases(material: Material) -> dict[str, Trend]:
    """Return seconds of a step by what the controller waited for; `other` is the rest of the step."""
    names = [name for name in material.record.names(r"time/\w+_s") if name not in _NO_PHASES]
    rest = {
        step: metrics["time/step_s"] - sum(metrics.get(name, 0.0) for name in names)
        for step, metrics in material.record.steps.items()
        if "time/step_s" in metrics
    }
    found = {name.removeprefix("time/").removesuffix("_s"): material.trend(name) for name in names}
    # Phases overlap where the run plays ahead, so that there may be less than no rest.
    other = trend_of(Series.of({step: max(0.0, seconds) for step, seconds in rest.items()}))
    return {name: trend for name, trend in (found | {"other": other}).items() if trend.num_points}


def time(material: Material) -> list[Finding]:
    """Name the phase that takes most of a step."""
    seconds, whole = phases(material), material.trend("time/step_s")
    if not seconds or not whole.late > 0:
        return []
    name = max(seconds, key=lambda phase: seconds[phase].late)
    share = seconds[name].late / whole.late
    if share < DOMINATING:
        return []
    sentence = f"{name} takes {share:.0%} of a step's {whole.late:.3g} s in the last third of steps."
    evidence = {"n": whole.num_points, "share": share, "step_s": whole.late, "phase_s": seconds[name].late}
    return [Finding("time", Severity.NOTE, sentence, evidence)]


_NO_PHASES = ("time/step_s", "time/checkpoint_s", "time/mirror_s", "time/offload_s", "time/onload_s")
"""The whole, what stands on lines of its own, and what is part of another phase."""

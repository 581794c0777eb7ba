"""Does the policy learn, what, and is it what was meant?"""

from skyrl_nat.evaluation.analysis.findings import Finding, Severity, interval
from skyrl_nat.evaluation.analysis.material import REWARD, Material, PartChange
from skyrl_nat.evaluation.analysis.rollout_table import MIN_PAIRS
from skyrl_nat.evaluation.analysis.series import MIN_POINTS, Direction, Series, Trend, trend_of
from skyrl_nat.evaluation.verdict import Decision

SMALL_SHARE = 0.1
"""A change of the reward by less than this share of the rewards' spread in a batch would not be worth a run."""
SOLVED = 0.95
"""Success from which on little is left to learn."""
LOW_SUCCESS = 0.5
"""Under it a run that stands still has left most tasks unsolved."""
FOLLOWING = 0.5
"""A success that rises by less than this share of the reward's rise does not follow it: most of the rise is paid for
something else."""


def learning(material: Material) -> list[Finding]:
    """Say whether the training reward changes."""
    trend, severity = material.reward, Severity.NOTE
    change = f"from {trend.early:.3g} to {trend.late:.3g} (change {interval(trend.low, trend.high)})"
    if trend.direction is Direction.RISES:
        sentence = f"The training reward rises {change}."
    elif trend.direction is Direction.FALLS:
        severity = Severity.PROBLEM
        sentence = f"The training reward falls {change}. Lower optimizer.lr, or look at what changed before it fell."
    elif trend.num_points < MIN_POINTS:
        sentence = f"Cannot tell whether the reward changes: {trend.num_points} steps, {MIN_POINTS} are needed."
    elif material.success.late >= SOLVED:
        sentence = f"Success is {material.success.late:.3g}: little is left to learn. Take harder tasks."
    elif trend.high <= _small_change(material):
        severity = Severity.WARNING
        sentence = (
            f"The training reward stands still, {change}. See which groups give a signal, and raise optimizer.lr."
        )
    else:
        sentence = f"Cannot tell whether the training reward changes: {change}, p = {trend.p_value:.2g}."
    return [Finding("learning", severity, sentence, trend.to_dict())]


def held_out(material: Material) -> list[Finding]:
    """Compare the held-out tasks of the first evaluation with themselves at the last."""
    if len(material.record.evaluations) < 2:
        return []
    found = material.held_out.table.paired("success")
    if found is None:
        sentence = f"Cannot tell whether held-out tasks fare better: under {MIN_PAIRS} were played twice."
        return [Finding("held_out", Severity.NOTE, sentence)]
    measure = found.measure
    change = (
        f"from {measure.before:.3g} to {measure.after:.3g} between steps {found.first_step} and {found.last_step} "
        f"(change {interval(measure.interval.low, measure.interval.high)} on {measure.num_tasks} tasks)"
    )
    severity, sentence = Severity.NOTE, f"Cannot tell whether held-out success changes: {change}."
    if found.decision is Decision.better:
        sentence = f"Held-out success rises {change}."
    elif found.decision is Decision.worse:
        severity = Severity.PROBLEM
        sentence = f"Held-out success falls {change}. Take the best checkpoint, not the last."
    return [Finding("held_out", severity, sentence, found.to_dict())]


def over_fitting(material: Material) -> list[Finding]:
    """Say whether training leaves the held-out tasks behind."""
    gap, others = trend_of(material.gap), trend_of(material.evaluated("reward"))
    if gap.num_points == 0:
        return []
    paired = material.held_out.table.paired("reward")
    is_rising = others.direction is Direction.RISES or (paired is not None and paired.decision is Decision.better)
    evidence = {**gap.to_dict(), "held_out_change": others.change, "held_out_p": others.p_value}
    if gap.num_points < MIN_POINTS:
        sentence = f"Cannot tell whether it over-fits: {gap.num_points} evaluations, {MIN_POINTS} are needed."
        return [Finding("over_fitting", Severity.NOTE, sentence, evidence)]
    if gap.direction is not Direction.RISES:
        return []
    change = (
        f"training reward less held-out reward grows from {gap.early:.3g} to {gap.late:.3g} "
        f"(change {interval(gap.low, gap.high)} over {gap.num_points} evaluations)"
    )
    if is_rising:
        sentence = f"The gap widens while held-out reward rises too: {change}. More kinds of tasks would narrow it."
        return [Finding("over_fitting", Severity.NOTE, sentence, evidence)]
    sentence = f"The run over-fits: {change}, and no rise of the held-out reward is seen. Add tasks, or stop earlier."
    return [Finding("over_fitting", Severity.WARNING, sentence, evidence)]


def under_fitting(material: Material) -> list[Finding]:
    """Say whether the run stands still with most tasks unsolved."""
    series = material.record.series(REWARD)
    half = len(series) // 2
    second = trend_of(Series(series.steps[half:], series.values[half:]))
    is_still = second.num_points >= MIN_POINTS and second.high <= _small_change(material)
    if not is_still or material.reward.direction is not Direction.RISES or material.success.late >= LOW_SUCCESS:
        return []
    sentence = (
        f"The run under-fits: the reward has stood still at {second.late:.3g} since step {int(series.steps[half])} "
        f"(change {interval(second.low, second.high)}) with a success of {material.success.late:.3g}. "
        "Add easier tasks, or raise trainer.rollouts_per_task."
    )
    return [Finding("under_fitting", Severity.WARNING, sentence, second.to_dict())]


def drivers(material: Material) -> list[Finding]:
    """Name the part of the reward that makes most of its change."""
    parts = [part for part in material.parts if part.contribution is not None]
    if material.reward.direction is Direction.CANNOT_TELL or not parts:
        return []
    whole = sum(part.contribution or 0.0 for part in parts)
    first = parts[0]
    if not first.contribution or first.trend.direction is Direction.CANNOT_TELL or not whole:
        return []
    share = first.contribution / whole
    sentence = (
        f"{first.name} makes {share:.0%} of the reward's change: it {first.trend.direction} from "
        f"{first.trend.early:.3g} to {first.trend.late:.3g}, with a weight of {first.weight:.2g}."
    )
    evidence = {**first.trend.to_dict(), "share": share, "weight": first.weight, "fit": material.weights.fit}
    return [Finding("drivers", Severity.NOTE, sentence, evidence)]


def traded(material: Material) -> list[Finding]:
    """Name parts that fall while the reward rises."""
    if material.reward.direction is not Direction.RISES:
        return []
    return [
        Finding(
            "traded",
            Severity.WARNING,
            f"{part.name} falls from {part.trend.early:.3g} to {part.trend.late:.3g} (change "
            f"{interval(part.trend.low, part.trend.high)}) while the reward rises. Raise its weight if it matters.",
            {**part.trend.to_dict(), "weight": part.weight},
        )
        for part in material.parts
        if part.trend.direction is Direction.FALLS and (part.weight is None or part.weight > 0)
    ]


def hacking(material: Material) -> list[Finding]:
    """Say whether the reward rises without the success that it stands for."""
    reward, success = material.reward, material.success
    if reward.direction is not Direction.RISES or success.direction is Direction.RISES:
        return []
    if success.late >= SOLVED:
        return []
    evidence = {**reward.to_dict(), **{f"success_{name}": value for name, value in success.to_dict().items()}}
    change = f"the reward rises by {reward.change:.3g} {interval(reward.low, reward.high)}, success " + _moved(success)
    if success.high >= FOLLOWING * reward.change:
        sentence = f"Cannot tell whether success follows the reward: {change}."
        return [Finding("hacking", Severity.NOTE, sentence, evidence)]
    rising = [part for part in material.parts if part.trend.direction is Direction.RISES]
    names = [part.name for part in rising]
    evidence |= {"rising_parts": ", ".join(names)}
    if _is_by_hidden_tests(rising, reward):
        sentence = (
            f"Success does not follow the reward: {change} over {reward.num_points} points. Most of the rise is "
            f"measured on hidden tests ({', '.join(names)}), of which a success needs all. Train longer, or take "
            "easier tasks."
        )
        return [Finding("hacking", Severity.WARNING, sentence, evidence)]
    sentence = (
        f"Suspect of reward hacking: {change} over {reward.num_points} points. "
        f"What rises: {_names(material.parts, names)}. Read rollouts of the last steps, and see what else is paid."
    )
    return [Finding("hacking", Severity.PROBLEM, sentence, evidence)]


def _is_by_hidden_tests(rising: list[PartChange], reward: Trend) -> bool:
    """Return whether parts that are measured on hidden tests make most of the reward's rise.

    Where the weights of the parts are not known, all that rise must be measured so.
    """
    if any(part.contribution is None for part in rising):
        return all(part.is_hidden for part in rising)
    gain = sum(part.contribution or 0.0 for part in rising if part.is_hidden)
    return gain >= FOLLOWING * reward.change


def _moved(trend: Trend) -> str:
    return f"moves by {trend.change:.3g} {interval(trend.low, trend.high)}"


def _names(parts: list[PartChange], rising: list[str]) -> str:
    return ", ".join(rising) or ("no part by itself" if parts else "not known, without rollout files")


def _small_change(material: Material) -> float:
    spread = material.record.series("rollout/reward/std").values
    return SMALL_SHARE * float(spread.mean()) if len(spread) else 0.0

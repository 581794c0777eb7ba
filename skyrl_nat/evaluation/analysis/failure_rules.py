"""What goes wrong in rollouts, how often, and what becomes of it."""

from collections import Counter

from skyrl_nat.evaluation.analysis.failures import OTHERS, Cluster, Clusters, Stage
from skyrl_nat.evaluation.analysis.findings import Finding, Severity, interval
from skyrl_nat.evaluation.analysis.material import Material
from skyrl_nat.evaluation.analysis.series import ALPHA, Direction

SHOWN_CLUSTERS = 20
"""Of a kind, the most frequent: their trends are tested and they stand on the page."""
FREQUENT = 0.2
"""Share of the last third's rollouts from which on one kind of finding is worth work on prompts or tasks."""
SUSPECTED = 0.05
"""Share of suspects from which on most groups hold one, or nearly, so that it sets what the others are measured by."""
BOTTLENECK = 0.2
"""Share of the last third's rollouts that a single stage must stop to be called the bottleneck."""
LOST = 0.05
"""Share of rollouts without a verdict from which on the tasks that are left may be other ones than were meant."""


def tested(clusters: Clusters) -> list[Cluster]:
    """Return the clusters that are looked at."""
    return [cluster for cluster in clusters.most_frequent() if cluster.name != OTHERS][:SHOWN_CLUSTERS]


def alpha_of(clusters: Clusters) -> float:
    """Return the level of each test, so that all together keep `ALPHA` (Bonferroni)."""
    return ALPHA / max(1, len(tested(clusters)))


def frequent(material: Material) -> list[Finding]:
    """Name the kind of finding that most rollouts of the last third have."""
    clusters = material.train.failures
    num_judged = _in_last_third(clusters.judged, clusters.judged)
    counts = {cluster.name: _in_last_third(cluster.by_step, clusters.judged) for cluster in tested(clusters)}
    if not counts or num_judged == 0:
        return []
    name = max(counts, key=lambda kind: counts[kind])
    share = counts[name] / num_judged
    if share < FREQUENT:
        return []
    sentence = f"{share:.0%} of the rollouts of the last third of steps have the finding: {name}"
    evidence = {"n": num_judged, "count": counts[name], "share": share, "kind": name}
    return [Finding("frequent", Severity.NOTE, sentence, evidence)]


def changing(material: Material) -> list[Finding]:
    """Name the kinds of findings that become more or less frequent."""
    clusters, alpha = material.train.failures, alpha_of(material.train.failures)
    # A policy that gets further meets what goes wrong there.
    worse = Severity.NOTE if material.success.direction is Direction.RISES else Severity.WARNING
    found = []
    for cluster in tested(clusters):
        trend = clusters.trend(cluster, alpha=alpha)
        if trend.direction is Direction.CANNOT_TELL:
            continue
        is_rising = trend.direction is Direction.RISES
        sentence = (
            f"A finding becomes {'more' if is_rising else 'less'} frequent, from {trend.early:.1%} to {trend.late:.1%} "
            f"of rollouts (change {interval(trend.low, trend.high)}): {cluster.name}"
        )
        severity = worse if is_rising else Severity.NOTE
        found.append(Finding("changing", severity, sentence, {**trend.to_dict(), "alpha": alpha, "kind": cluster.name}))
    return found


def suspicions(material: Material) -> list[Finding]:
    """Say how many rollouts show signs of cheating."""
    counted = material.train.suspicions
    trend = material.trend("reward/suspected/mean")
    num_suspects = counted.affected.total()
    if num_suspects == 0 and not trend.late > 0:
        return []
    is_much = trend.direction is Direction.RISES or trend.late >= SUSPECTED
    share = f"{trend.early:.1%} of rollouts in the first third of steps, {trend.late:.1%} in the last"
    kinds = ", ".join(cluster.name for cluster in tested(counted)[:3]) or "see the rollouts"
    what = "Read the examples; environment.screen=drop keeps suspects out of training." if is_much else ""
    sentence = f"Rollouts show signs of cheating: {share} ({kinds}). {what}".rstrip()
    evidence = {**trend.to_dict(), "count": num_suspects, "judged": counted.judged.total()}
    return [Finding("suspicions", Severity.WARNING if is_much else Severity.NOTE, sentence, evidence)]


def bottleneck(material: Material) -> list[Finding]:
    """Name the stage that stops most rollouts of the last third that reach it."""
    stopped: dict[str, float] = {}
    for name, stage in material.train.stages.items():
        wanted, reached, passed = last_third(stage)
        if wanted:
            stopped[name] = (reached - passed) / wanted
    if not stopped:
        return []
    name = max(stopped, key=lambda stage: stopped[stage])
    if stopped[name] < BOTTLENECK:
        return []
    wanted, reached, passed = last_third(material.train.stages[name])
    sentence = (
        f"The stage {name} stops most: {reached} of {wanted} rollouts of the last third of steps reach it, "
        f"{passed} pass it."
    )
    return [Finding("bottleneck", Severity.NOTE, sentence, {"n": wanted, "reached": reached, "passed": passed})]


def lost(material: Material) -> list[Finding]:
    """Say how many rollouts have no verdict."""
    outcomes = material.train.outcomes
    num_lost, num_all = (outcomes["infrastructure_failure"] + outcomes["validator_failure"]), outcomes.total()
    if num_all == 0 or num_lost / num_all < LOST:
        return []
    sentence = (
        f"{num_lost} of {num_all} rollouts have no verdict: {outcomes['infrastructure_failure']} lost to "
        f"infrastructure, {outcomes['validator_failure']} to the validator. See the log and quarantine.jsonl."
    )
    return [Finding("lost", Severity.WARNING, sentence, {"n": num_all, "count": num_lost})]


def last_third(stage: Stage) -> tuple[int, int, int]:
    """Return how many rollouts of the last third of steps a stage was to check, checked and passed."""
    wanted, reached, passed = (
        _in_last_third(counts, stage.wanted) for counts in (stage.wanted, stage.reached, stage.passed)
    )
    return wanted, reached, passed


def _in_last_third(counts: Counter[int], among: Counter[int]) -> int:
    steps = sorted(among)
    return sum(counts[step] for step in steps[-max(1, len(steps) // 3) :])

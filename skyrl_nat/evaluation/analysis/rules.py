"""All rules, in the order in which their findings are told."""

from collections.abc import Callable

from skyrl_nat.evaluation.analysis import failure_rules, health_rules, learning_rules
from skyrl_nat.evaluation.analysis.findings import Finding, by_severity
from skyrl_nat.evaluation.analysis.material import Material

RULES: tuple[Callable[[Material], list[Finding]], ...] = (
    learning_rules.learning,
    learning_rules.held_out,
    learning_rules.hacking,
    failure_rules.suspicions,
    learning_rules.over_fitting,
    learning_rules.under_fitting,
    learning_rules.drivers,
    learning_rules.traded,
    failure_rules.frequent,
    failure_rules.changing,
    failure_rules.bottleneck,
    failure_rules.lost,
    health_rules.signal,
    health_rules.length,
    health_rules.entropy,
    health_rules.distance,
    health_rules.clipping,
    health_rules.staleness,
    health_rules.time,
)


def findings_of(material: Material) -> list[Finding]:
    """Return what all rules find, what asks for most first."""
    return by_severity([finding for rule in RULES for finding in rule(material)])

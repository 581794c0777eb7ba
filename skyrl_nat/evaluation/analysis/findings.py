"""What a finding is: a sentence with the numbers it stands on."""

from dataclasses import dataclass, field
from enum import StrEnum

Evidence = dict[str, float | int | str | None]


class Severity(StrEnum):
    """How much a finding asks for."""

    PROBLEM = "problem"
    """The run does not do what it is for, or what it shows cannot be trusted."""
    WARNING = "warning"
    """Worth a change or a look before the next run."""
    NOTE = "note"
    """Good to know, or something that cannot be told."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One conclusion."""

    rule: str
    """Name of what decided it, see docs/analysis.md."""
    severity: Severity
    sentence: str
    evidence: Evidence = field(default_factory=Evidence)

    def to_dict(self) -> dict[str, object]:
        """Return JSON data."""
        return {
            "rule": self.rule,
            "severity": str(self.severity),
            "sentence": self.sentence,
            "evidence": dict(self.evidence),
        }


def by_severity(findings: list[Finding]) -> list[Finding]:
    """Return findings, what asks for most first, else in their order."""
    return sorted(findings, key=lambda finding: list(Severity).index(finding.severity))


def interval(low: float, high: float) -> str:
    """Return an interval as it stands in a sentence."""
    return f"[{low:+.3g}, {high:+.3g}]"

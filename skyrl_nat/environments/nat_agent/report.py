"""The judgement of one answer as it grows, and at its end as a structured report."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from skyrl_nat.environments.nat_agent.rewards import Evidence
from skyrl_nat.types import StageReport

STAGES: dict[str, tuple[str, ...]] = {
    "static": (),
    "register": ("register:",),
    "schema": ("schema:",),
    "options": ("options:",),
    "build": ("build:",),
    "workflow_file": ("options:",),
    "introspect": ("pattern:",),
    "oracle": ("tool ",),
    "workflow": ("workflow:",),
    "mcp": ("mcp:",),
    "own_tests": ("own tests:",),
    "mcp_script": ("mcp script:",),
}
"""Stage -> how its findings begin; those of the static stage come first and begin with a file or a subject."""
MAX_EVIDENCE_CHARS = 1000


@dataclass(slots=True)
class Judgement:
    """What has been found of one answer so far."""

    findings: list[str]
    suspicions: list[str]
    num_static: int = 0
    """Findings of the static stage; they come first."""
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """Stage -> wall clock, of those that were reached."""
    evidence: Evidence = field(default_factory=Evidence)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Measure a stage that runs in or for the parent."""
        started = monotonic()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + monotonic() - started

    def stages(self, wanted: tuple[str, ...]) -> list[StageReport]:
        """Return a report for each wanted stage; one that was not reached is not ok."""
        return [self._stage(name) for name in STAGES if name in wanted]

    def _stage(self, name: str) -> StageReport:
        report = self.evidence.stages.get(name, {})
        is_reached = name in self.seconds or name in self.evidence.stages
        is_reached = is_reached or (name == "introspect" and bool(self.evidence.tools))
        if name == "static":
            found = self.findings[: self.num_static]
        else:
            found = [text for text in self.findings[self.num_static :] if text.startswith(STAGES[name])]
        seconds = report.get("seconds", 0.0)
        return StageReport(
            name=name,
            is_ok=is_reached and not found,
            seconds=round(self.seconds.get(name, seconds if isinstance(seconds, (int, float)) else 0.0), 4),
            evidence="; ".join(found)[:MAX_EVIDENCE_CHARS] if is_reached else "not reached",
        )

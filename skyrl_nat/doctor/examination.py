"""Sections one after the other, the cheap ones first; what stops one of them never hides the others."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from skyrl_nat.doctor.check import Check, skipped


class Section(StrEnum):
    """Part of the table, in the order in which they are examined."""

    environment = "environment"
    cluster = "cluster"
    sandbox = "sandbox"
    data = "data"
    template = "template"
    rewards = "rewards"
    engine = "engine"

    @property
    def title(self) -> str:
        """Name for people."""
        return {Section.data: "data set", Section.engine: "engine and trainer"}.get(self, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A section and what was found."""

    section: Section
    checks: list[Check]
    seconds: float

    def number(self, verdict: str) -> int:
        """Return how many checks have this verdict."""
        return sum(check.verdict == verdict for check in self.checks)


def examine_sections(
    sections: Mapping[Section, Callable[[], list[Check]]], tell: Callable[[Examined], None]
) -> list[Examined]:
    """Return what every section finds; the engine is not tried where something is wrong that it needs.

    Args:
        sections: What examines each, in order.
        tell: Is told of each as soon as it is done.
    """
    found: list[Examined] = []
    for section, look in sections.items():
        started = time.monotonic()
        missing = [check.name for part in found for check in part.checks if check.is_needed and check.is_ok is False]
        if section is Section.engine and missing:
            checks = [skipped("all checks with the model", f"it needs what is wrong above: {'; '.join(missing)}")]
        else:
            checks = _guarded(look)
        found.append(Examined(section=section, checks=checks, seconds=time.monotonic() - started))
        tell(found[-1])
    return found


def _guarded(look: Callable[[], list[Check]]) -> list[Check]:
    try:
        return look()
    except Exception as error:  # noqa: BLE001 - the border of one section: what is caught becomes a row
        return [
            Check(
                name="this section can be examined",
                expected="yes",
                found=f"no, {type(error).__name__}: {error}",
                is_ok=False,
                advice="Correct what it says",
                is_needed=True,
            )
        ]

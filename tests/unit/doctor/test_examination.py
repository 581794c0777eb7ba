"""Sections in order: told at once, none hidden by another, the engine spared where it cannot be tried."""

import pytest

from skyrl_nat.doctor.check import Check, none_of, skipped
from skyrl_nat.doctor.examination import Examined, Section, examine_sections
from skyrl_nat.errors import ConfigError

GOOD = [none_of("", "faults", [])]
BAD = [none_of("", "faults", ["x"], is_needed=True)]
HARMLESS = [none_of("", "oddities", ["x"])]


def verdicts(parts: list[Examined]) -> list[list[str]]:
    return [[check.verdict for check in part.checks] for part in parts]


def test_each_section_is_told_as_soon_as_it_is_done() -> None:
    events: list[str] = []

    def look(name: str) -> list[Check]:
        events.append(f"look {name}")
        return GOOD

    examine_sections(
        {Section.environment: lambda: look("environment"), Section.cluster: lambda: look("cluster")},
        lambda part: events.append(f"told {part.section}"),
    )
    assert events == ["look environment", "told environment", "look cluster", "told cluster"]


def test_a_section_that_raises_is_a_wrong_row_and_the_next_ones_are_examined() -> None:
    def fail() -> list[Check]:
        raise ConfigError("environment.family must be known, got x. Correct it")

    parts = examine_sections({Section.sandbox: fail, Section.data: lambda: GOOD}, lambda _: None)
    assert verdicts(parts) == [["WRONG"], ["ok"]]
    assert parts[0].checks[0].found == "no, ConfigError: environment.family must be known, got x. Correct it"


def test_the_engine_is_skipped_where_something_is_wrong_that_it_needs() -> None:
    def never() -> list[Check]:
        raise AssertionError

    parts = examine_sections(
        {Section.data: lambda: BAD, Section.rewards: lambda: HARMLESS, Section.engine: never}, lambda _: None
    )
    assert verdicts(parts) == [["WRONG"], ["WRONG"], ["skipped"]]
    assert parts[2].checks[0].found == "it needs what is wrong above: faults"


def test_what_the_engine_does_not_need_leaves_it_alone() -> None:
    sections = {Section.rewards: lambda: [*HARMLESS, skipped("x", "y")], Section.engine: lambda: GOOD}
    assert verdicts(examine_sections(sections, lambda _: None)) == [["WRONG", "skipped"], ["ok"]]


def test_who_stops_it_is_heard() -> None:
    def stop() -> list[Check]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        examine_sections({Section.data: stop}, lambda _: None)

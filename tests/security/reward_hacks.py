"""All known ways to be paid without doing the work."""

from security.hack import Hack, bases
from security.hacks_by_answers import BY_ANSWERS
from security.hacks_by_evidence import BY_EVIDENCE
from security.hacks_by_red_team import BY_RED_TEAM
from security.hacks_by_tests import BY_TESTS

HACKS: dict[str, Hack] = BY_TESTS | BY_ANSWERS | BY_EVIDENCE | BY_RED_TEAM

__all__ = ["HACKS", "Hack", "bases"]

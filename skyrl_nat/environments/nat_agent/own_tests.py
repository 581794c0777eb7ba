"""What the package's own tests are worth: C x R x D, each between 0 and 1.

C, correct: the share of tests that pass, on the package written otherwise (`mutants.restate`), and that look at what
a tool answers: they fail where every answer is another one, and do not care what the package looks like inside.
R, right: do they pass where the tools answer as the hidden references do?
D, discerning: do they fail where the tools answer as wrong versions of the references do, and where the
package itself has a mistake in it?

References and their wrong versions never enter the sandbox: the tests' calls are recorded, their answers come
from the oracle, and the tests run again on a table of answers. Which table it is is not said there, and every
run has a fresh sandbox with one table only, so a test that wants to be paid must look at the answers. A wrong
version that raises where the right one answers shows nothing: every test that merely calls would notice.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from skyrl_nat.environments.nat_agent.mutants import mutate_all, plain, restate
from skyrl_nat.environments.nat_agent.oracle import Call, ReferenceOracle, UnansweredError
from skyrl_nat.environments.nat_agent.payload import AgentSpec, HiddenSpec, Mutant
from skyrl_nat.environments.nat_agent.plays import Play, Plays, SpareServers, run_own_tests
from skyrl_nat.environments.nat_agent.recorded_calls import (
    Report,
    Table,
    agree,
    answers_to_strangers,
    callers_of,
    other_answers,
    own_answer,
    recorded_calls,
    table_of,
    without_new_refusals,
)
from skyrl_nat.environments.nat_agent.static_checks import StaticReport, is_test_file
from skyrl_nat.sandbox.base import Sandbox

MAX_MUTANTS_OF_A_TOOL = 3
MAX_OWN_MUTANTS = 2
MAX_TRIES = 8
ENOUGH = 0.8
"""Share of mutants at which D is full: some hide behind inputs that nobody needs to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """The three factors and what was seen."""

    correct: float = 0.0
    right: float = 0.0
    discerning: float = 0.0
    findings: list[str] = field(default_factory=list[str])

    @property
    def value(self) -> float:
        """C x R x D."""
        return self.correct * self.right * self.discerning


class OwnTestsJudge:
    """Judges the tests of one answer."""

    def __init__(self, sandbox: Sandbox, oracle: ReferenceOracle, spares: SpareServers) -> None:
        """Keep where the tests run, who knows the answers, and how many servers may run tests before their turn."""
        self._sandbox, self._oracle, self._spares = sandbox, oracle, spares

    def judge(self, spec: AgentSpec, hidden: HiddenSpec, static: StaticReport, rng: random.Random) -> Worth:
        """Return the worth of the package's own tests.

        Raises:
            SandboxError: The sandbox failed.
        """
        if not static.tests or not spec.integration.num_tests:
            return Worth(findings=["own tests: there are none"])
        try:
            files = _rewritten(static, restate)
        except (RecursionError, ValueError):  # what parses need not unparse: quotes in f-strings, deep nesting
            return Worth(findings=["own tests: the package's code nests too deeply to be judged"])
        recorded = run_own_tests(self._sandbox, spec, static, files, None)
        passed = _passed(recorded, static.tests)
        findings = _explain(recorded, static.tests, passed)
        callers = {key: tests & set(passed) for key, tests in callers_of(recorded).items()}
        calling: set[str] = set().union(*callers.values())
        # What only a failed test has called tells nothing of the others: no mistake counts that changes nothing else.
        calls = {key: call for key, call in recorded_calls(recorded).items() if callers[key]}
        if not calling:
            findings.append("own tests: they call no tool through NAT" if passed else "own tests: none passes")
            return Worth(findings=findings)
        seen = _Seen(calls, callers, calling)
        try:
            with Plays(partial(run_own_tests, self._sandbox, spec, static), self._spares) as plays:
                worth = _Examination(plays, spec, static, seen, rng).judge(self._oracle, hidden)
        except (UnansweredError, RecursionError, ValueError) as error:
            return Worth(findings=[*findings, f"own tests: cannot be judged: {error}"[:300]])
        return replace(worth, findings=[*findings, *worth.findings])


class _Examination:
    """Looks closely at tests that pass and call a tool."""

    def __init__(self, plays: Plays, spec: AgentSpec, static: StaticReport, seen: "_Seen", rng: random.Random) -> None:
        self._plays, self._spec, self._static, self._seen, self._rng = plays, spec, static, seen, rng
        self._files = static.files
        """The package beside which all tables are played: if only its code is looked at, they are all the same."""

    def judge(self, oracle: ReferenceOracle, hidden: HiddenSpec) -> Worth:
        """Return the worth of the tests."""
        tests, asked = self._seen.tests, self._spec.integration.num_tests
        wanted = max(len(self._static.tests), asked)
        mistakes = self._find_mistakes()
        if mistakes:
            self._files = mistakes[0].files
        rounds = _rounds(self._spec, hidden.mutants, self._rng)
        right, *wrong = self._ask(oracle, hidden, rounds)
        beside = self._touching(mistakes or [])
        quiet = [without_new_refusals(table, right) for table in wrong]
        own = [(mistake, without_new_refusals(right | mistake.changed, right)) for mistake in mistakes or []]
        own = [(mistake, table) for mistake, table in own if table != right]
        # All of them are known now, and played in the order in which they are looked at.
        same = [(self._files, table) for table in [*quiet, *(table for _, table in own)]]
        passing = self._passing([*((mistake.files, right) for mistake in beside), *same])
        share, inside = self._right(beside, right, passing)
        if share < 1.0:
            finding = "own tests: they fail on a right implementation"
            return Worth(correct=len(tests) / wanted, right=share, findings=[finding])
        mutated = zip(rounds, quiet, wrong, strict=True)
        killed = [noticed - inside for noticed in self._notice_wrong(mutated, right, passing)]
        caught = [noticed - inside for noticed in self._notice_mistakes(own, passing)]
        if mistakes == []:
            caught = [set[str]()]  # where mistakes change nothing that the tests see
        noticing: set[str] = set().union(*killed, *caught)
        looking = noticing | self._looking(tests - noticing - inside, right)
        # One test that looks closely does not pay for others that hardly do.
        enough = min(1.0, len(noticing) / ((asked + 1) // 2))
        discerning = min(1.0, _share(killed) / ENOUGH) * _share(caught) * enough
        findings: list[str] = []
        if blind := len(tests - looking):
            findings.append(f"own tests: {blind} call a tool and do not look at what it answers")
        if discerning < 1.0:
            findings.append(
                f"own tests: they notice {sum(map(bool, killed))} of {len(killed)} wrong implementations and "
                f"{sum(map(bool, caught))} of {len(caught)} mistakes in the package; "
                f"{len(noticing)} tests notice anything"
            )
        return Worth(correct=len(looking) / wanted, right=share, discerning=discerning, findings=findings)

    def _find_mistakes(self) -> list["_Mistake"] | None:
        """Return versions of the package with a mistake in every function that do something to a call of the tests.

        None if there is no place for a mistake. The search ends with a version that does more than raise, once each
        test has seen some version do something, or else with a second one.
        """
        static, found = self._static, list["_Mistake"]()
        versions = _mutated(static, self._rng, MAX_TRIES)
        if all(text == plain(static.files[path]) for path, text in versions[0].items()):
            return None
        untouched = set(self._seen.tests)
        tries = [static.files | mutated for mutated in versions]
        for files, reports in zip(tries, self._plays.each((files, None) for files in tries), strict=True):
            again = recorded_calls(reports)
            both = {key: (again[key], call) for key, call in self._seen.calls.items() if key in again}
            changed = {key: own_answer(now) for key, (now, before) in both.items() if not agree(now, before)}
            if changed and _has_finished(reports):
                before = {key: own_answer(self._seen.calls[key]) for key in changed}
                found.append(_Mistake(files, changed, without_new_refusals(changed, before) != before))
                untouched -= self._seen.makers_of(changed)
            if sum(mistake.says_otherwise for mistake in found) >= (MAX_OWN_MUTANTS if untouched else 1):
                break
        return found

    def _ask(self, oracle: ReferenceOracle, hidden: HiddenSpec, rounds: Sequence[Mapping[str, str]]) -> list[Table]:
        """Return the right answers to the tests' calls, and those of each round of wrong references."""
        calls = self._seen.calls
        asked = [
            Call(chain=(call["call"],), input=call.get("input"), options=_options(self._spec, call))
            for call in calls.values()
        ]
        strangers = answers_to_strangers(calls)
        return [table_of(calls, row) | strangers for row in oracle.answers(hidden, asked, [{}, *rounds])]

    def _touching(self, mistakes: Sequence["_Mistake"]) -> list["_Mistake"]:
        """Return the first mistake, and each that does something to a test that no other before it has touched."""
        found, untouched = list["_Mistake"](), set(self._seen.tests)
        for mistake in mistakes:
            if touched := untouched & self._seen.makers_of(mistake.changed):
                found.append(mistake)
                untouched -= touched
        return found

    def _right(self, beside: Sequence["_Mistake"], right: Table, passing: Iterator[set[str]]) -> tuple[float, set[str]]:
        """Return R, and the tests that look inside: their tools answer rightly, only the package has mistakes.

        What passes beside mistakes passes without them.
        """
        tests, inside = self._seen.tests, set[str]()
        for _, passed in zip(beside, passing, strict=False):
            inside |= tests - passed
        if beside and not inside:
            return 1.0, inside
        return len(self._passed(self._plays.reports(self._static.files, right))) / len(tests), inside

    def _notice_wrong(
        self,
        rounds: Iterable[tuple[Mapping[str, str], Table, Table]],
        right: Table,
        passing: Iterator[set[str]],
    ) -> Iterator[set[str]]:
        """Yield for each hidden mutant the tests that fail on its answers.

        The mutants of different tools share a run: a failed test tells which of them it has called. One that does
        nothing to the tests' calls but raise is left out.

        Args:
            rounds: Of each what was mutated, what is played, and what the mutants have answered.
            right: What the references answer.
            passing: The tests that pass, play by play.
        """
        seen = self._seen
        for (mutated, table, loud), passed in zip(rounds, passing, strict=False):
            changed = {key for key in right if table[key] != right[key]}
            refused = {key for key in right if table[key] != loud[key]}
            for tool in mutated:
                if calls := seen.calls_of(tool, changed):
                    yield (seen.tests - passed) & seen.makers_of(calls)
                elif not seen.calls_of(tool, refused):
                    yield set()

    def _notice_mistakes(
        self, own: Sequence[tuple["_Mistake", Table]], passing: Iterator[set[str]]
    ) -> Iterator[set[str]]:
        """Yield for each mistake the tests that fail on what the package answers with it."""
        for (mistake, _), passed in zip(own, passing, strict=False):
            yield (self._seen.tests - passed) & self._seen.makers_of(mistake.changed)

    def _looking(self, tests: set[str], right: Table) -> set[str]:
        """Return those of some tests that fail where every answer is another one, larger or smaller."""
        blind = set(tests)
        if blind:
            others = [(self._files, other_answers(right, is_larger=is_larger)) for is_larger in (True, False)]
            for passed in self._passing(others):
                blind &= passed
                if not blind:
                    break
        return tests - blind

    def _passing(self, plays: Iterable[Play]) -> Iterator[set[str]]:
        """Yield the tests that pass in each play."""
        return map(self._passed, self._plays.each(plays))

    def _passed(self, reports: Sequence[Report]) -> set[str]:
        return self._seen.tests & set(_passed(reports, list(self._seen.tests)))


def _is_package_code(path: str) -> bool:
    """Return whether a file is the package's, and not a test or what tests share."""
    return path.endswith(".py") and not is_test_file(path) and not path.startswith("tests/")


def _mutated(static: StaticReport, rng: random.Random, count: int) -> list[dict[str, str]]:
    """Return versions of the package's own modules with a mistake in every function."""
    sources = [path for path in static.files if _is_package_code(path)]
    versions = {path: mutate_all(static.files[path], rng, count) for path in sources}
    return [{path: texts[number] for path, texts in versions.items()} for number in range(count)]


def find_failures(reports: Sequence[Report], wanted: Sequence[str]) -> dict[str, str]:
    """Return the wanted tests that did not pass, with what was said of them."""
    texts: dict[str, str] = {}
    for report in reports:
        if "test" in report and report.get("outcome") != "passed":
            texts.setdefault(str(report["test"]).partition("[")[0], str(report.get("text")))
    broken = [str(r.get("text", r.get("error"))) for r in reports if "collect" in r or r.get("stage") == "crash"]
    passed = _passed(reports, wanted)
    return {test: texts.get(test, (broken or ["did not run"])[0]) for test in wanted if test not in passed}


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the recorded run has shown."""

    calls: Mapping[str, Report]
    """Key -> call."""
    callers: Mapping[str, set[str]]
    """Key -> tests that made the call."""
    tests: set[str]
    """Those that pass and call a tool."""

    def calls_of(self, tool: str, keys: Iterable[str]) -> list[str]:
        """Return those of some calls that are of a tool."""
        return [key for key in keys if key in self.calls and self.calls[key]["call"] == tool]

    def makers_of(self, keys: Iterable[str]) -> set[str]:
        """Return the tests that have made one of some calls."""
        return set[str]().union(*(self.callers[key] for key in keys))


@dataclass(frozen=True, slots=True)
class _Mistake:
    """A version of the package with a mistake in every function."""

    files: dict[str, str]
    changed: Table
    """What it answers to calls of the tests that it answers otherwise."""
    says_otherwise: bool
    """Whether it does more than raise."""


def _share(noticed: Sequence[set[str]]) -> float:
    """Return the share of what was noticed by some test; of nothing, all."""
    return sum(map(bool, noticed)) / len(noticed) if noticed else 1.0


def _rounds(spec: AgentSpec, mutants: Sequence[Mutant], rng: random.Random) -> list[dict[str, str]]:
    """Return the mutants in rounds of one for each tool at most."""
    rounds: list[dict[str, str]] = [{} for _ in range(MAX_MUTANTS_OF_A_TOOL)]
    for tool in spec.functions:
        own = [mutant.source for mutant in mutants if mutant.tool == tool.name]
        for place, source in zip(rounds, rng.sample(own, min(len(own), MAX_MUTANTS_OF_A_TOOL)), strict=False):
            place[tool.name] = source
    return [place for place in rounds if place]


def _rewritten(static: StaticReport, change: Any) -> dict[str, str]:
    return {path: change(text) if _is_package_code(path) else text for path, text in static.files.items()}


def _passed(reports: Sequence[Report], wanted: Sequence[str]) -> list[str]:
    """Return the wanted tests of which something was reported, and nothing but `passed`, in a run that ended."""
    if not _has_finished(reports):
        return []
    outcomes: dict[str, set[str]] = defaultdict(set)
    for report in reports:
        if "test" in report and "outcome" in report:
            outcomes[str(report["test"]).partition("[")[0]].add(str(report["outcome"]))
    return [test for test in wanted if outcomes.get(test) == {"passed"}]


def _has_finished(reports: Sequence[Report]) -> bool:
    return any("finished" in report for report in reports)


def _explain(reports: Sequence[Report], wanted: Sequence[str], passed: Sequence[str]) -> list[str]:
    findings = [f"own tests: {r['collect']}: {str(r.get('text'))[-200:]}" for r in reports if "collect" in r][:3]
    reported = {str(report["test"]).partition("[")[0] for report in reports if "test" in report}
    if missing := [test for test in wanted if test not in reported]:
        findings.append(f"own tests: {len(missing)} missing, such as {missing[0]}")
    if not any("finished" in report for report in reports):
        findings.append("own tests: the run did not come to its end")
    if len(passed) < len(wanted):
        findings.append(f"own tests: {len(passed)} of {len(wanted)} pass")
    return findings


def _options(spec: AgentSpec, report: Report) -> dict[str, Any]:
    """Return the documented options among those of a recorded call."""
    names = {option.name for tool in spec.functions if tool.name == report["call"] for option in tool.config}
    return {name: value for name, value in report["options"].items() if name in names}

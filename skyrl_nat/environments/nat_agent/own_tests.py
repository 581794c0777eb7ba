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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from skyrl_nat.environments.nat_agent.mutants import mutate_all, plain, restate
from skyrl_nat.environments.nat_agent.oracle import Call, ReferenceOracle, UnansweredError
from skyrl_nat.environments.nat_agent.payload import AgentSpec, HiddenSpec, Mutant
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
from skyrl_nat.sandbox.base import Sandbox, SandboxJob

MAX_SECONDS = 30.0
"""For all runs of one answer's tests."""
MAX_MUTANTS_OF_A_TOOL = 3
NUM_OWN_MUTANTS = 2
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

    def __init__(self, sandbox: Sandbox, oracle: ReferenceOracle) -> None:
        """Keep where the tests run and who knows the answers."""
        self._sandbox = sandbox
        self._oracle = oracle

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
        calls, callers = recorded_calls(recorded), callers_of(recorded)
        calling = [test for test in passed if any(test in tests for tests in callers.values())]
        if not calling:
            findings.append("own tests: they call no tool through NAT" if passed else "own tests: none passes")
            return Worth(findings=findings)
        replay = _Replay(calls, callers, calling, monotonic() + MAX_SECONDS)
        try:
            worth = self._look_closely(spec, hidden, static, replay, rng)
        except (UnansweredError, RecursionError, ValueError) as error:
            return Worth(findings=[*findings, f"own tests: cannot be judged: {error}"[:300]])
        return replace(worth, findings=[*findings, *worth.findings])

    def _look_closely(
        self, spec: AgentSpec, hidden: HiddenSpec, static: StaticReport, replay: "_Replay", rng: random.Random
    ) -> Worth:
        """Return the worth of tests that pass."""
        table, kept, killed = self._replay(spec, hidden, static, replay, rng)
        wanted = max(len(static.tests), spec.integration.num_tests)
        right = len(kept) / len(replay.passed)
        if right < 1.0:
            finding = "own tests: they fail on a right implementation"
            return Worth(correct=len(replay.passed) / wanted, right=right, findings=[finding])
        own, inside = self._own_mutants(spec, static, replay, table, rng)
        killed = [tests - inside for tests in killed]
        looking = self._looking(spec, static, replay, table) - inside
        hidden_share = sum(map(bool, killed)) / len(killed) if killed else 1.0
        own_share = sum(map(bool, own)) / len(own) if own else 1.0
        # One test that looks closely does not pay for others that hardly do.
        noticing: set[str] = set().union(*killed, *own)
        enough = (spec.integration.num_tests + 1) // 2
        discerning = min(1.0, hidden_share / ENOUGH) * own_share * min(1.0, len(noticing) / enough)
        worth = Worth(correct=len(looking) / wanted, right=right, discerning=discerning)
        if len(looking) < len(replay.passed):
            number = len(replay.passed) - len(looking)
            worth.findings.append(f"own tests: {number} call a tool and do not look at what it answers")
        if discerning < 1.0:
            worth.findings.append(
                f"own tests: they notice {sum(map(bool, killed))} of {len(killed)} wrong implementations and "
                f"{sum(map(bool, own))} of {len(own)} mistakes in the package; {len(noticing)} tests notice anything"
            )
        return worth

    def _replay(
        self, spec: AgentSpec, hidden: HiddenSpec, static: StaticReport, replay: "_Replay", rng: random.Random
    ) -> tuple[Table, set[str], list[set[str]]]:
        """Return the right answers, the tests that pass on them, and for each hidden mutant those that noticed it.

        The mutants of different tools share a run: a failed test tells which of them it has called. One that does
        nothing to the tests' calls but raise is left out.
        """
        rounds = _rounds(spec, hidden.mutants, rng)
        calls = replay.calls.values()
        asked = [Call(chain=(c["call"],), input=c.get("input"), options=_options(spec, c)) for c in calls]
        right, *wrong = (table_of(replay.calls, row) for row in self._oracle.answers(hidden, asked, [{}, *rounds]))
        strangers = answers_to_strangers(replay.calls)
        right |= strangers
        quiet = [strangers | without_new_refusals(table, right) for table in wrong]
        order = [right, *quiet]
        rng.shuffle(order)
        passing = {id(table): self._play(spec, static, static.files, table, replay) for table in order}
        kept = passing[id(right)]
        noticed: list[set[str]] = []
        for mutated, loud, table in zip(rounds, wrong, quiet, strict=True):
            failed = kept - passing[id(table)]
            changed = {key for key in right if table[key] != right[key]}
            refused = {key for key in loud if table[key] != loud[key]}
            for tool in mutated:
                if replay.calls_of(tool, changed) or not replay.calls_of(tool, refused):
                    noticed.append({test for test in failed if replay.touches(test, tool, changed)})
        return right, kept, noticed

    def _play(
        self, spec: AgentSpec, static: StaticReport, files: dict[str, str], table: Table, replay: "_Replay"
    ) -> set[str]:
        """Return the tests that pass on a table."""
        replay.check_time()
        return set(_passed(run_own_tests(self._sandbox, spec, static, files, table), replay.passed))

    def _looking(self, spec: AgentSpec, static: StaticReport, replay: "_Replay", right: Table) -> set[str]:
        """Return the tests that fail where every answer is another one, larger or smaller."""
        blind = set(replay.passed)
        for is_larger in (True, False):
            if blind:
                blind &= self._play(spec, static, static.files, other_answers(right, is_larger=is_larger), replay)
        return set(replay.passed) - blind

    def _own_mutants(
        self, spec: AgentSpec, static: StaticReport, replay: "_Replay", right: Table, rng: random.Random
    ) -> tuple[list[set[str]], set[str]]:
        """Return, for packages with a mistake in every function, the tests that noticed; and those that look inside.

        Beside the mistakes the tests run twice, on the right answers and on those that the mistakes give. Who fails
        on the first has looked at the package's code; who fails on the second alone has noticed.

        A version in which no answer that the tests saw has changed, or that only raises, does not count; if none of
        them does anything to a call, though there are places for mistakes, the tests look at nothing.
        """
        noticed: list[set[str]] = []
        inside: set[str] = set()
        versions = _mutated(static, rng, MAX_TRIES)
        is_mutable = any(text != plain(static.files[path]) for path, text in versions[0].items())
        has_refused = False
        for mutated in versions if is_mutable else []:
            if len(noticed) == NUM_OWN_MUTANTS:
                break
            replay.check_time()
            files = static.files | mutated
            reports = run_own_tests(self._sandbox, spec, static, files, None)
            again = recorded_calls(reports)
            changed = {
                key: own_answer(again[key])
                for key, call in replay.calls.items()
                if key in again and not agree(again[key], call)
            }
            if not changed or not _has_finished(reports):
                continue
            beside = self._play(spec, static, files, right, replay)
            inside |= set(replay.passed) - beside
            table = without_new_refusals(right | changed, right)
            has_refused = has_refused or table != right | changed
            if table != right:
                noticed.append(beside - self._play(spec, static, files, table, replay))
        return noticed if noticed or has_refused or not is_mutable else [set()], inside


def _is_package_code(path: str) -> bool:
    """Return whether a file is the package's, and not a test or what tests share."""
    return path.endswith(".py") and not is_test_file(path) and not path.startswith("tests/")


def _mutated(static: StaticReport, rng: random.Random, count: int) -> list[dict[str, str]]:
    """Return versions of the package's own modules with a mistake in every function."""
    sources = [path for path in static.files if _is_package_code(path)]
    versions = {path: mutate_all(static.files[path], rng, count) for path in sources}
    return [{path: texts[number] for path, texts in versions.items()} for number in range(count)]


def run_own_tests(
    sandbox: Sandbox,
    spec: AgentSpec,
    static: StaticReport,
    files: dict[str, str],
    table: Table | None,
    *,
    is_verbose: bool = False,
) -> list[Report]:
    """Run the tests in a fresh sandbox; returns what was reported.

    Args:
        sandbox: Where.
        spec: The task.
        static: What the parent knows of the package.
        files: Its files, or a version of them.
        table: Answers of the tools by `call_key`; None lets the tools work.
        is_verbose: Whether failures are explained; slower.

    Raises:
        SandboxError: The sandbox failed.
    """
    arguments = {
        "source_root": static.source_root,
        "module": static.module,
        "tools": [tool.name for tool in spec.functions],
        "tests": sorted({test.partition("::")[0] for test in static.tests}),
        "table": table,
        "is_verbose": is_verbose,
    }
    output = sandbox.run(SandboxJob(kind="nat_own_tests", files=files, arguments=arguments)).output
    reports = output.get("reports", [])
    return [report for report in reports if isinstance(report, dict)] if isinstance(reports, list) else []


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
class _Replay:
    """What the recorded run has shown."""

    calls: Mapping[str, Report]
    """Key -> call."""
    callers: Mapping[str, set[str]]
    """Key -> tests that made the call."""
    passed: Sequence[str]
    """Tests that pass and call a tool."""
    until: float
    """Monotonic time by which all must be known."""

    def check_time(self) -> None:
        """Raise ValueError once the time is over."""
        if monotonic() > self.until:
            raise ValueError(f"they take more than {MAX_SECONDS:g} s in all")

    def calls_of(self, tool: str, keys: set[str]) -> list[str]:
        """Return those of some calls that are of a tool."""
        return [key for key in keys if self.calls[key]["call"] == tool]

    def touches(self, test: str, tool: str, changed: set[str]) -> bool:
        """Return whether a test has made a changed call of a tool."""
        return any(test in self.callers[key] for key in self.calls_of(tool, changed))


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

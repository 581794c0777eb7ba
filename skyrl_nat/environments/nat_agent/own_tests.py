"""What the package's own tests are worth: C x R x D, each between 0 and 1.

C, correct: the share of tests that call a tool and pass, on the package written otherwise (`mutants.restate`);
tests that look inside the package do not count.
R, right: do they pass where the tools answer as the hidden references do?
D, discerning: do they fail where the tools answer as wrong versions of the references do, and where the
package itself has a mistake in it?

References and their wrong versions never enter the sandbox: the tests' calls are recorded, their answers come
from the oracle, and the tests run again on a table of answers. Which table it is is not said there, and every
run has a fresh sandbox with one table only, so a test that wants to be paid must look at the answers.
"""

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from skyrl_nat.environments.nat_agent.mutants import mutate_all, plain, restate
from skyrl_nat.environments.nat_agent.oracle import Answer, Call, ReferenceOracle, UnansweredError
from skyrl_nat.environments.nat_agent.payload import AgentSpec, HiddenSpec, Mutant
from skyrl_nat.environments.nat_agent.static_checks import StaticReport, is_test_file
from skyrl_nat.sandbox.base import Sandbox, SandboxJob

MAX_CALLS = 80
"""Different calls of the tests that are looked at."""
MAX_CALL_CHARS = 60_000
"""Of all of them together: what is asked must be answered."""
MAX_SECONDS = 30.0
"""For all runs of one answer's tests."""
MAX_MUTANTS_OF_A_TOOL = 3
NUM_OWN_MUTANTS = 2
MAX_TRIES = 8
ENOUGH = 0.8
"""Share of mutants at which D is full: some hide behind inputs that nobody needs to try."""

Report = Mapping[str, Any]


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
        calls, callers = _calls(recorded), _callers(recorded)
        calling = [test for test in passed if any(test in tests for tests in callers.values())]
        correct = len(calling) / max(len(static.tests), spec.integration.num_tests)
        if not calling:
            findings.append("own tests: they call no tool through NAT" if passed else "own tests: none passes")
            return Worth(correct=correct, findings=findings)
        replay = _Replay(calls, callers, calling, monotonic() + MAX_SECONDS)
        try:
            worth = self._look_closely(spec, hidden, static, replay, rng)
        except (UnansweredError, RecursionError, ValueError) as error:
            return Worth(correct=correct, findings=[*findings, f"own tests: cannot be judged: {error}"[:300]])
        return Worth(
            correct=correct, right=worth.right, discerning=worth.discerning, findings=[*findings, *worth.findings]
        )

    def _look_closely(
        self, spec: AgentSpec, hidden: HiddenSpec, static: StaticReport, replay: "_Replay", rng: random.Random
    ) -> Worth:
        """Return R and D of tests that pass."""
        right, kept, killed = self._replay(spec, hidden, static, replay, rng)
        if right < 1.0:
            return Worth(right=right, findings=["own tests: they fail on a right implementation"])
        own = self._own_mutants(spec, static, replay, kept, rng)
        hidden_share = sum(map(bool, killed)) / len(killed) if killed else 1.0
        own_share = sum(map(bool, own)) / len(own) if own else 1.0
        # One test that looks does not pay for others that only call.
        noticing: set[str] = set().union(*killed, *own)
        enough = (spec.integration.num_tests + 1) // 2
        discerning = min(1.0, hidden_share / ENOUGH) * own_share * min(1.0, len(noticing) / enough)
        if discerning == 1.0:
            return Worth(right=right, discerning=discerning)
        finding = (
            f"own tests: they notice {sum(map(bool, killed))} of {len(killed)} wrong implementations and "
            f"{sum(map(bool, own))} of {len(own)} mistakes in the package; {len(noticing)} tests notice anything"
        )
        return Worth(right=right, discerning=discerning, findings=[finding])

    def _replay(
        self, spec: AgentSpec, hidden: HiddenSpec, static: StaticReport, replay: "_Replay", rng: random.Random
    ) -> tuple[float, list[str], list[set[str]]]:
        """Return R, the tests that look at answers alone, and for each hidden mutant the tests that noticed it.

        The mutants of different tools share a run: a failed test tells which of them it has called.
        """
        rounds = _rounds(spec, hidden.mutants, rng)
        calls = replay.calls.values()
        asked = [Call(chain=(c["call"],), input=c.get("input"), options=_options(spec, c)) for c in calls]
        right, *wrong = (_table(replay.calls, row) for row in self._oracle.answers(hidden, asked, [{}, *rounds]))
        order = [right, *wrong]
        rng.shuffle(order)
        passing = {id(table): self._pass(spec, static, table, replay) for table in order}
        kept = passing[id(right)]
        share = len(kept) / len(replay.passed)
        if share == 1.0:
            inside = self._looking_inside(spec, static, right, replay, rng)
            kept = [test for test in kept if test not in inside]
        noticed: list[set[str]] = []
        for mutated, table in zip(rounds, wrong, strict=True):
            failed = set(kept) - set(passing[id(table)])
            changed = {key for key in right if table[key] != right[key]}
            noticed += [{test for test in failed if replay.touches(test, tool, changed)} for tool in mutated]
        return share, kept, noticed

    def _pass(self, spec: AgentSpec, static: StaticReport, table: dict[str, Any], replay: "_Replay") -> list[str]:
        replay.check_time()
        return _passed(run_own_tests(self._sandbox, spec, static, static.files, table), replay.passed)

    def _looking_inside(
        self, spec: AgentSpec, static: StaticReport, right: dict[str, Any], replay: "_Replay", rng: random.Random
    ) -> set[str]:
        """Return the tests that fail on a package with mistakes though its tools answer rightly: they see its code."""
        replay.check_time()
        [files] = _mutated(static, rng, 1)
        reports = run_own_tests(self._sandbox, spec, static, static.files | files, right)
        if not _has_finished(reports):  # the mistakes keep it from being imported, which says nothing of the tests
            return set()
        return set(replay.passed) - set(_passed(reports, replay.passed))

    def _own_mutants(
        self, spec: AgentSpec, static: StaticReport, replay: "_Replay", kept: Sequence[str], rng: random.Random
    ) -> list[set[str]]:
        """Return, for packages with a mistake in every function, the tests that noticed.

        One where no answer that the tests saw has changed does not count; if that is so for all of them, though there
        are places for mistakes, the tests look at nothing.
        """
        noticed: list[set[str]] = []
        versions = _mutated(static, rng, MAX_TRIES)
        is_mutable = any(text != plain(static.files[path]) for path, text in versions[0].items())
        for files in versions if is_mutable else []:
            if len(noticed) == NUM_OWN_MUTANTS:
                break
            replay.check_time()
            reports = run_own_tests(self._sandbox, spec, static, static.files | files, None)
            again = _calls(reports)
            if any(key in again and _said(again[key]) != _said(call) for key, call in replay.calls.items()):
                noticed.append(set(kept) - set(_passed(reports, kept)))
        return noticed if noticed or not is_mutable else [set()]


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
    table: dict[str, Any] | None,
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

    def touches(self, test: str, tool: str, changed: set[str]) -> bool:
        """Return whether a test has made a changed call of a tool."""
        return any(self.calls[key]["call"] == tool and test in self.callers[key] for key in changed)


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


def _calls(reports: Sequence[Report]) -> dict[str, Report]:
    """Return the recorded calls by key; a call that was answered in two ways is left out."""
    found: dict[str, Report] = {}
    unsteady: set[str] = set()
    for report in reports:
        if not isinstance(report.get("call"), str) or not isinstance(report.get("options"), dict):
            continue
        key = call_key(report["call"], report["options"], report.get("input"))
        if key in found and _said(found[key]) != _said(report):
            unsteady.add(key)
        found.setdefault(key, report)
    kept: dict[str, Report] = {}
    room = MAX_CALL_CHARS
    for key, report in found.items():
        room -= len(key) + len(json.dumps(report.get("output")))
        if key not in unsteady and room >= 0 and len(kept) < MAX_CALLS:
            kept[key] = report
    return kept


def _callers(reports: Sequence[Report]) -> dict[str, set[str]]:
    """Return the tests that made each call, without parameters."""
    found: dict[str, set[str]] = defaultdict(set)
    for report in reports:
        if isinstance(report.get("call"), str) and isinstance(report.get("options"), dict):
            key = call_key(report["call"], report["options"], report.get("input"))
            found[key].add(str(report.get("by")).partition("[")[0])
    return found


def call_key(tool: str, options: Mapping[str, Any], value: Any) -> str:
    """Return the key of a call in a table; the same as inside the sandbox."""
    return json.dumps([tool, options, value], sort_keys=True)


def _said(report: Report) -> tuple[Any, Any]:
    raised = report.get("raised")
    return report.get("output"), raised[0] if isinstance(raised, list) and raised else None


def _options(spec: AgentSpec, report: Report) -> dict[str, Any]:
    """Return the documented options among those of a recorded call."""
    names = {option.name for tool in spec.functions if tool.name == report["call"] for option in tool.config}
    return {name: value for name, value in report["options"].items() if name in names}


def _table(calls: Mapping[str, Report], answers: Sequence[Answer]) -> dict[str, Any]:
    """Return what the tools are to answer; an exception says what the package's own said, whatever that was."""
    table: dict[str, Any] = {}
    for (key, call), answer in zip(calls.items(), answers, strict=True):
        if answer.raises:
            table[key] = {"raises": answer.raises, "message": str(call.get("error", "")).partition(": ")[2]}
        else:
            table[key] = {"output": json.dumps(answer.output)}
    return table


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

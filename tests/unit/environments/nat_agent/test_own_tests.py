"""What a package's own tests are worth: correct, right, discerning; only looking at the answers pays."""

import json
from typing import Any

import pytest
from nat_tasks import BODIES, answer, source_of
from own_tests_bench import GOOD, PATH, Bench, Output, factors, has_mistakes

from skyrl_nat.environments.nat_agent.own_tests import Worth, find_failures
from skyrl_nat.environments.nat_agent.recorded_calls import MAX_CALLS
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import SandboxJob, SandboxResult


@pytest.mark.parametrize("seed", range(4))
def test_good_tests_are_worth_everything(seed: int) -> None:
    worth = Bench().judge(seed)
    assert factors(worth) == (1.0, 1.0, 1.0)
    assert (worth.value, worth.findings) == (1.0, [])


def test_worth_is_the_product_of_its_factors() -> None:
    assert Worth(correct=0.5, right=0.5, discerning=0.25).value == 0.0625
    assert Worth().value == 0.0


def test_rendered_tests_of_an_honest_answer_are_worth_everything() -> None:
    bench = Bench()
    bench.files = answer(bench.task)
    assert bench.judge().value == 1.0


def test_correct_is_the_share_of_tests_that_pass() -> None:
    worth = Bench(GOOD + "def test_bad():\n    assert False\n").judge()
    assert factors(worth) == (pytest.approx(2 / 3), 1.0, 1.0)
    assert "own tests: 2 of 3 pass" in worth.findings


def test_one_failed_parameter_fails_the_test() -> None:
    rows = '@pytest.mark.parametrize("x", [1, 2])\nasync def test_rows(x):\n    assert await call("scale", x) == 2\n'
    assert Bench(GOOD + rows).judge().correct == pytest.approx(2 / 3)


def test_correct_is_measured_from_the_number_asked_for() -> None:
    bench = Bench('async def test_scale():\n    assert await call("scale", 7) == 14\n')
    bench.task.payload["integration"]["num_tests"] = 4
    assert bench.judge().correct == 0.25


def test_missing_tests_count_as_failed_sb_04() -> None:
    def drop(job: SandboxJob, output: Output) -> Output:
        output["reports"] = [r for r in output["reports"] if r.get("test") != f"{PATH}::test_shout"]
        return output

    worth = Bench(change=drop).judge()
    assert worth.correct == 0.5
    assert f"own tests: 1 missing, such as {PATH}::test_shout" in worth.findings


def test_module_level_skip_is_worth_nothing_sb_05_a() -> None:
    worth = Bench("pytest.skip('later', allow_module_level=True)\n" + GOOD).judge()
    assert worth.value == 0.0
    assert worth.findings[0] == f"own tests: {PATH}: later"


def test_nothing_collected_is_worth_nothing_sb_05_b() -> None:
    worth = Bench(change=lambda job, output: {"reports": [{"finished": 5}], "end": "done"}).judge()
    assert worth.value == 0.0
    assert worth.findings[0].startswith("own tests: 2 missing")
    assert "own tests: the run did not come to its end" not in worth.findings
    assert Bench("x = 1\n").judge().findings == ["own tests: there are none"]


def test_leaving_the_interpreter_is_worth_nothing_sb_05_c() -> None:
    def leave(job: SandboxJob, output: Output) -> Output:
        return {"reports": [report for report in output["reports"] if "finished" not in report], "end": "died"}

    worth = Bench(change=leave).judge()
    assert factors(worth) == (0.0, 0.0, 0.0)
    assert "own tests: the run did not come to its end" in worth.findings


@pytest.mark.parametrize("outcome", ["skipped", "xfail", "failed", "PASSED", None])
def test_only_passed_is_passed(outcome: Any) -> None:
    def change(job: SandboxJob, output: Output) -> Output:
        for report in output["reports"]:
            report.update({"outcome": outcome} if "test" in report else {})
        return output

    assert Bench(change=change).judge().value == 0.0


def test_test_that_passes_and_fails_to_tear_down_has_not_passed() -> None:
    def change(job: SandboxJob, output: Output) -> Output:
        output["reports"].insert(0, {"test": f"{PATH}::test_scale", "outcome": "failed", "text": ""})
        return output

    assert Bench(change=change).judge().correct == 0.5


def test_tautologies_are_not_discerning() -> None:
    always = 'async def test_scale():\n    await call("scale", 7)\ndef test_true():\n    assert True\n'
    worth = Bench(always).judge()
    assert factors(worth) == (0.0, 1.0, 0.0)
    assert "own tests: 1 call a tool and do not look at what it answers" in worth.findings
    assert "they notice 0 of 2 wrong implementations" in worth.findings[-1]


def test_tests_that_call_no_tool_are_worth_nothing() -> None:
    worth = Bench("def test_a():\n    assert True\ndef test_b():\n    assert True\n").judge()
    assert factors(worth) == (0.0, 0.0, 0.0)
    assert worth.findings == ["own tests: they call no tool through NAT"]


def test_asserting_a_wrong_value_that_the_package_gives_is_not_right() -> None:
    """The package's own mistake is confirmed by its test; the reference disagrees."""
    wrong = GOOD.replace('== "AB!"', '== "AB?"')
    worth = Bench(wrong).judge(shout="return text.upper() + '?'")
    assert factors(worth) == (1.0, 0.5, 0.0)
    both = Bench(wrong.replace("14", "15")).judge(shout="return text.upper() + '?'", scale="return x * 2 + 1")
    assert factors(both) == (1.0, 0.0, 0.0)
    assert both.findings == ["own tests: they fail on a right implementation"]


def test_tests_of_one_tool_alone_notice_one_of_two_mutants() -> None:
    one = 'async def test_scale():\n    assert await call("scale", 7) == 14\nasync def test_again():\n    '
    worth = Bench(one + 'assert await call("scale", 9) == 18\n').judge(seed=1)
    assert worth.discerning == pytest.approx(0.5 / 0.8)
    assert "they notice 1 of 2 wrong implementations" in worth.findings[-1]


def test_mutants_of_two_tools_in_one_round_go_to_the_right_tool() -> None:
    """Only the test of scale looks; the one of shout calls it and looks away, so only one mutant is noticed."""
    blind = GOOD.replace('assert await call("shout", "ab") == "AB!"', 'await call("shout", "ab")')
    bench = Bench(blind)
    worth = bench.judge()
    assert sum("'9'" in str(table) and "ab!" in str(table) for table in bench.tables) == 1  # one round for both
    assert "they notice 1 of 2 wrong implementations" in worth.findings[-1]


def test_calls_that_do_not_reach_the_mistake_do_not_notice_it() -> None:
    bench = Bench(GOOD.replace('"scale", 7) == 14', '"scale", 2) == 4'))  # 2 + 2 is 2 * 2
    assert "they notice 1 of 2 wrong implementations" in bench.judge().findings[-1]


def test_most_mutants_are_enough() -> None:
    bench = Bench()
    same = source_of(BODIES["shout"], "text")
    scale = [{"tool": "scale", "source": source_of(f"return x + {number}", "x")} for number in (1, 2)]
    upper = [{"tool": "shout", "source": source_of(f"return {text!r}", "text")} for text in ("a", "b")]
    bench.task.hidden["mutants"] = [*scale, *upper, {"tool": "shout", "source": same}]
    assert bench.judge().discerning == 1.0  # 4 of 5, which is enough
    bench.task.hidden["mutants"] = [*scale, *upper[:1], {"tool": "shout", "source": same}]
    assert Bench.judge(bench).discerning == pytest.approx(0.75 / 0.8)


def test_a_mutated_package_that_the_tests_do_not_notice_costs() -> None:
    """The mutants of the references are noticed by replay; a package whose tests pass with its own mistakes is not."""

    def change(job: SandboxJob, output: Output) -> Output:
        if has_mistakes(job):
            for report in output["reports"]:
                report.update({"outcome": "passed"} if "test" in report else {})
        return output

    worth = Bench(change=change).judge()
    assert factors(worth) == (0.0, 1.0, 0.0)
    assert "0 of 1 mistakes in the package" in worth.findings[-1]


def test_a_mutated_run_that_never_ends_has_not_passed_and_needs_changed_answers_to_count() -> None:
    def change(job: SandboxJob, output: Output) -> Output:
        return {"reports": [], "end": "died"} if has_mistakes(job) else output

    assert "0 of 1 mistakes in the package" in Bench(change=change).judge().findings[-1]


def test_tables_hold_one_set_of_answers_and_no_other() -> None:
    bench = Bench(GOOD + 'async def test_blind():\n    await call("scale", 7)\n')
    bench.judge()
    shout, scale = '["shout", {}, "ab"]', '["scale", {"factor": 2}, 7]'
    found = [{key: json.loads(value["output"]) for key, value in table.items()} for table in bench.tables]
    right, wrong = {scale: 14, shout: "AB!"}, {scale: 9, shout: "ab!"}
    assert found[:2] == [right, wrong]
    [own] = found[2:-2]  # the answers of a version with mistakes
    assert own != right
    assert set(own) == set(right)
    assert found[-2:] == [{scale: 29, shout: "AB!AB!?"}, {scale: -29, shout: ""}]
    for job in bench.sandbox.jobs:
        text = json.dumps(job.arguments)
        assert not ('"AB!\\\\"' in text and "ab!" in text)
        assert set(job.arguments) == {"source_root", "module", "tools", "tests", "table", "is_verbose"}


def test_all_tables_are_played_beside_the_same_package() -> None:
    """Else its code would tell them apart."""
    bench = Bench()
    bench.judge()
    played = [job for job in bench.sandbox.jobs if job.arguments["table"] is not None]
    assert len(played) == 3
    assert len({json.dumps(job.files) for job in played}) == 1
    assert all(has_mistakes(job) for job in played)


def test_answers_to_calls_that_were_not_made_are_made_of_the_packages_own_answers() -> None:
    """Were they made of the right ones, they would tell which table is right."""
    bench = Bench(GOOD.replace('== "AB!"', '== "AB?"'))
    bench.judge(shout="return text.upper() + '?'")
    strangers = [job.arguments["table"]['["shout"]'] for job in bench.sandbox.jobs if job.arguments["table"]]
    assert strangers == [{"output": '"AB?AB??"'}] * 2


def test_no_hidden_source_is_ever_sent_to_the_policys_sandbox() -> None:
    """References, their mutants, vectors: nothing of them is in any job, wherever it stands."""
    refuses = "async def test_refuses():\n    with pytest.raises(ValueError):\n        await call('scale', -3)\n"
    bench = Bench(GOOD + refuses)
    hidden = bench.task.hidden
    for number, item in enumerate((*hidden["reference"].values(), *hidden["mutants"])):
        item["source"] = item["source"].replace("\n", f"\n    mark = {73911000 + number}\n", 1)
    assert bench.judge().value == 1.0
    sent = json.dumps([[job.kind, job.files, job.arguments] for job in bench.sandbox.jobs])
    assert len(bench.sandbox.jobs) == 5
    for secret in ("73911", "async def run(x):", "UPWARDS", "upwards", "2000"):
        assert secret not in sent
    asked = json.dumps([job.arguments for job in bench.oracle.jobs])
    assert all(f"mark = {73911000 + number}" in asked for number in range(4))


def test_refusals_of_the_reference_are_replayed_too() -> None:
    tests = GOOD + "async def test_refuses():\n    with pytest.raises(ValueError, match='negative'):\n        "
    bench = Bench(tests + "await call('scale', -3)\n")
    assert bench.judge().value == 1.0
    key = '["scale", {"factor": 2}, -3]'
    refused = {"raises": "ValueError", "message": "negative"}
    assert [table[key] for table in bench.tables[:2]] == [refused] * 2


def test_options_of_the_tests_own_configuration_reach_the_reference() -> None:
    other = GOOD.replace("async def test_shout", "CONFIGS['scale'] = ScaleConfig(factor=10)\nasync def test_shout")
    worth = Bench(other.replace("14", "70")).judge()
    assert worth.right == 1.0


def test_unsteady_call_is_left_out() -> None:
    """A tool that answers the same call in two ways: what it said cannot be replayed."""

    def change(job: SandboxJob, output: Output) -> Output:
        if job.arguments["table"] is None:
            [first] = [report for report in output["reports"] if report.get("call") == "shout"]
            output["reports"].append({**first, "output": "other"})
        return output

    bench = Bench(change=change)
    worth = bench.judge()
    assert {tuple(table) for table in bench.tables} == {('["scale", {"factor": 2}, 7]',)}
    assert worth.right == 0.5  # the test of shout meets a call that is in no table


def test_number_of_calls_that_are_looked_at_is_bounded() -> None:
    many = f'async def test_many():\n    for x in range({MAX_CALLS + 30}):\n        await call("scale", x)\n'
    bench = Bench(GOOD + many)
    bench.judge()
    assert {len(table) for table in bench.tables} == {MAX_CALLS}


JUNK: list[Any] = [None, 7, "x", [], [None, 3, "x"], [{"test": None}], [{"test": [], "outcome": {}}], [{"call": 3}]]
JUNK += [[{"call": "nobody", "options": {}}, {"finished": 0}], [{"call": "scale", "options": [], "input": {}}]]
JUNK += [[{"call": "scale", "options": {"factor": []}, "input": {"a": [10**300]}, "by": {}, "raised": 3}]]


@pytest.mark.parametrize("reports", JUNK)
def test_forged_reports_never_raise_and_never_pay(reports: Any) -> None:
    forged = Bench(change=lambda job, output: {"reports": reports})
    assert forged.judge().value == 0.0

    def add(job: SandboxJob, output: Output) -> Output:
        return {"reports": [*output["reports"], *(reports if isinstance(reports, list) else [])]}

    assert 0.0 <= Bench(change=add).judge().value <= 1.0


def test_forged_passes_without_calls_never_pay() -> None:
    passed = [{"test": f"{PATH}::{name}", "outcome": "passed"} for name in ("test_scale", "test_shout")]
    reports = [*passed, {"finished": 0}]
    assert Bench(change=lambda job, output: {"reports": reports}).judge().value == 0.0
    calls = [{"call": "scale", "options": {"factor": 2}, "input": 7, "output": 14, "by": f"{PATH}::test_scale"}]
    assert Bench(change=lambda job, output: {"reports": [*calls, *reports]}).judge().value == 0.0


def test_code_that_nests_too_deeply_is_a_finding() -> None:
    bench = Bench()
    worth = bench.judge(scale="return x * (" + "+".join(["1"] * 900) + ")")
    assert worth.value == 0.0
    assert worth.findings == ["own tests: the package's code nests too deeply to be judged"]


def test_sandbox_that_fails_is_an_infrastructure_error() -> None:
    def broken(job: SandboxJob, output: Output) -> SandboxResult:
        raise SandboxError("gone")

    with pytest.raises(SandboxError, match="gone"):
        Bench(change=broken).judge()


def test_failures_are_told_with_what_was_said_of_them() -> None:
    reports = [
        {"collect": "tests/test_b.py", "outcome": "failed", "text": "SyntaxError"},
        {"test": "a", "outcome": "passed"},
        {"test": "b[0]", "outcome": "failed", "text": "1 != 2"},
        {"finished": 1},
    ]
    assert find_failures(reports, ["a", "b", "c"]) == {"b": "1 != 2", "c": "SyntaxError"}
    assert find_failures([], ["a"]) == {"a": "did not run"}

"""Tests that look at the package, tests that only call, and limits."""

import json

import pytest
from nat_tasks import source_of
from own_tests_bench import GOOD, Bench, Output, factors, has_mistakes

from skyrl_nat.environments.nat_agent import plays as module
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import SandboxJob, SandboxResult

INSIDE = """
async def inside(name, value):
    async with WorkflowBuilder() as builder:
        function = await builder.add_function(name, CONFIGS[name])
        assert await function.ainvoke(value) == await function.run(value)
async def test_scale():
    await inside("scale", 0)
async def test_shout():
    await inside("shout", "ab")
"""
"""They compare what NAT answers with what the package's code gives: right in every package, and no test of it."""


@pytest.mark.parametrize("seed", range(8))
def test_tests_that_look_at_the_packages_code_notice_nothing(seed: int) -> None:
    worth = Bench(INSIDE).judge(seed)
    assert factors(worth) == (0.0, 1.0, 0.0)
    assert "they notice 0 of 2 wrong implementations" in worth.findings[-1]
    assert worth.findings[-1].endswith("0 tests notice anything")


def test_tests_beside_those_that_look_at_the_code_still_count() -> None:
    mixed = INSIDE.replace('await inside("shout", "ab")', 'assert await call("shout", "ab") == "AB!"')
    worth = Bench(mixed).judge()
    assert factors(worth) == (0.5, 1.0, pytest.approx(0.5 / 0.8))
    assert "notice 1 of 2 wrong implementations and 1 of 1 mistakes in the package; 1 tests" in worth.findings[-1]


@pytest.mark.parametrize("reports", [[{"finished": 0}], []])
def test_package_that_ends_the_run_when_it_was_changed_gains_nothing(reports: list[Output]) -> None:
    def change(job: SandboxJob, output: Output) -> Output:
        ends = has_mistakes(job) and job.arguments["table"] is not None
        return {"reports": reports, "end": "done"} if ends else output

    worth = Bench(change=change).judge()
    assert worth.discerning == 0.0
    assert worth.findings[-1].startswith("own tests: they notice 0 of 2 wrong")


def test_mistakes_that_only_a_failed_test_has_seen_do_not_count() -> None:
    """Else all but the right answers would be played beside them, and the package's code would tell which is which."""

    def change(job: SandboxJob, output: Output) -> Output:
        for report in output["reports"]:
            if str(report.get("test")).endswith("test_scale") and has_mistakes(job):
                report["outcome"] = "failed"  # it looks at the code and at nothing else
        return output

    bare = 'async def test_scale():\n    await call("scale", 7)\n'
    failing = 'async def test_shout():\n    await call("shout", "ab")\n    assert False\n'
    worth = Bench(bare + failing, change).judge(scale="import operator\nreturn operator.mul(x, config.factor)")
    assert (worth.right, worth.discerning, worth.value) == (1.0, 0.0, 0.0)
    assert "they notice 0 of 2 wrong implementations and 0 of 1 mistakes in the package" in worth.findings[-1]


def test_package_that_raises_when_it_was_changed_does_not_hide_tests_that_look_inside() -> None:
    guard = "if [7, 1] != [7, 1]:\n    raise ValueError('changed')\n"
    bench = Bench(INSIDE)
    for seed in range(6):
        assert bench.judge(seed, scale=guard + "return x * 2", shout=guard + "return text.upper() + '!'").value == 0.0


REFUSING = {"scale": "return [x * 2][x - x]", "shout": "return [text.upper() + '!'][len(text) - len(text)]"}
"""A changed index is out of range, so most mistakes in these bodies raise."""


def test_calling_alone_does_not_notice_a_version_that_only_raises() -> None:
    bare = 'async def test_a():\n    await call("scale", 7)\nasync def test_b():\n    await call("shout", "a")\n'
    bench = Bench(bare)
    loud = "raise ValueError('no')"
    bench.task.hidden["mutants"] = [
        {"tool": tool, "source": source_of(loud, name)} for tool, name in (("scale", "x"), ("shout", "text"))
    ]
    for seed in range(6):
        assert bench.judge(seed, **REFUSING).discerning == 0.0


def test_version_that_only_raises_is_left_out() -> None:
    bench = Bench()
    loud = {"tool": "scale", "source": source_of("raise ValueError('no')", "x")}
    bench.task.hidden["mutants"].append(loud)
    assert bench.judge().value == 1.0
    blind = Bench(GOOD.replace(" == 14", ""))
    blind.task.hidden["mutants"].append(loud)
    assert "they notice 1 of 2 wrong implementations" in blind.judge().findings[-1]


def test_calling_on_with_what_another_call_gave_is_not_looking() -> None:
    """On wrong answers the second call is in no table, and must be answered all the same."""
    chain = "async def test_scale():\n    x = await call('scale', 7)\n    await call('scale', x)\n"
    looking = "async def test_shout():\n    assert await call('shout', 'ab') == 'AB!'\n"
    worth = Bench(chain + looking).judge()
    assert worth.right == 1.0
    assert worth.findings[-1].startswith("own tests: they notice 1 of 2 wrong implementations and 1 of 1 mistakes")
    assert worth.findings[-1].endswith("1 tests notice anything")


def test_chain_that_looks_at_its_end_notices_the_packages_mistakes() -> None:
    chain = "async def test_scale():\n    x = await call('scale', 7)\n    assert await call('scale', x) == 28\n"
    also = "async def test_seven():\n    assert await call('scale', 7) == 14\n"
    bench = Bench(chain + also)
    bench.task.hidden["mutants"] = [item for item in bench.task.hidden["mutants"] if item["tool"] == "scale"]
    assert bench.judge().value == 1.0


def test_refusal_that_is_missing_is_noticed() -> None:
    refuses = "async def test_refuses():\n    with pytest.raises(ValueError):\n        await call('scale', -3)\n"
    bench = Bench(refuses + "async def test_shout():\n    assert await call('shout', 'ab') == 'AB!'\n")
    bench.task.hidden["mutants"] = [{"tool": "scale", "source": source_of("return x * 2", "x")}]
    assert bench.judge().value == 1.0


def test_one_test_that_looks_does_not_pay_for_others_that_only_call() -> None:
    looking = (
        'async def test_both():\n    assert await call("scale", 7) == 14\n    assert await call("shout", "a") == "A!"\n'
    )
    head = "    try:\n        await call('scale', {0})\n    except Exception:\n        pass\n"
    calling = "".join(f"async def test_{i}():\n{head.format(i)}" for i in range(3))
    bench = Bench(looking + calling)
    for asked, discerning in ((2, 1.0), (3, 0.5), (4, 0.5), (6, pytest.approx(1 / 3))):
        bench.task.payload["integration"]["num_tests"] = asked
        worth = bench.judge()
        assert (worth.right, worth.discerning) == (1.0, discerning)
    assert worth.findings[-1].endswith(
        "2 of 2 wrong implementations and 1 of 1 mistakes in the package; 1 tests notice anything"
    )


def test_only_passing_tests_that_call_a_tool_are_correct() -> None:
    idle = "def test_a():\n    assert True\nasync def test_b():\n    assert 1 + 1 == 2\n"
    worth = Bench(GOOD + idle).judge()
    assert factors(worth) == (0.5, 1.0, 1.0)
    assert Bench('async def test_a():\n    await call("scale", 7)\n    assert False\n').judge().findings[-1] == (
        "own tests: none passes"
    )


def test_time_for_all_runs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SECONDS", -1.0)
    bench = Bench()
    worth = bench.judge()
    assert factors(worth) == (0.0, 0.0, 0.0)
    assert worth.findings == ["own tests: cannot be judged: they take more than -1 s in all"]
    assert len(bench.sandbox.jobs) == 1


def test_time_is_looked_at_before_every_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])

    def change(job: SandboxJob, output: Output) -> Output:
        now[0] += 100.0 if has_mistakes(job) else 1.0
        return output

    worth = Bench(change=change).judge()
    assert (worth.value, worth.findings[-1]) == (0.0, "own tests: cannot be judged: they take more than 30 s in all")


def test_length_of_the_calls_that_are_looked_at_is_bounded() -> None:
    big = 'async def test_big():\n    assert await call("shout", "a" * 70_000) == "A" * 70_000 + "!"\n'
    bench = Bench(GOOD + big)
    worth = bench.judge()
    assert worth.right == pytest.approx(2 / 3)  # what is in no table cannot pass
    assert worth.value == 0.0
    assert max(len(json.dumps(table)) for table in bench.tables) < 1000
    assert max(len(json.dumps(job.arguments)) for job in bench.oracle.jobs) < 2000


@pytest.mark.parametrize("status", ["done", "timeout", "died"])
def test_calls_that_the_references_cannot_answer_are_worth_nothing(status: str) -> None:
    bench = Bench()
    output = {"reports": [], "end": "timeout"} if status == "done" else {}
    bench.oracle.run = lambda job: SandboxResult(status=status, output=output, log="", wall_s=0.0)  # type: ignore[method-assign]
    worth = bench.judge()
    assert factors(worth) == (0.0, 0.0, 0.0)
    assert worth.findings[-1].startswith("own tests: cannot be judged: references must answer every call, got 0 of 4")
    assert len(worth.findings[-1]) <= 300


def test_oracle_that_fails_is_an_infrastructure_error() -> None:
    def broken(job: SandboxJob) -> SandboxResult:
        raise SandboxError("gone")

    bench = Bench()
    bench.oracle.run = broken  # type: ignore[method-assign]
    with pytest.raises(SandboxError, match="gone"):
        bench.judge()


def test_test_that_no_mistake_has_touched_is_given_a_second_one() -> None:
    bench = Bench(
        GOOD + "async def test_refuses():\n    with pytest.raises(ValueError):\n        await call('scale', -3)\n"
    )
    refuse = "if x < 0:\n    raise ValueError('negative')\n"
    for seed in range(8):
        bench.sandbox.jobs.clear()
        assert bench.judge(seed, scale=refuse + "return x + x").value == 1.0
        mistaken = {job.files["agent/register.py"] for job in bench.sandbox.jobs if has_mistakes(job)}
        assert 1 <= len(mistaken) <= 8
        if len(mistaken) > 1:
            break
    assert len(mistaken) > 1

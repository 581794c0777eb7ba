"""Every call is on the books, no budget is passed, and nothing is paid twice, whenever the process dies."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from planner_server import PlannerServer, Reply, VirtualClock

from skyrl_nat.config.planner import PlannerConfig
from skyrl_nat.data.planner.ask import Answered, Outcome, Planner
from skyrl_nat.data.planner.backends import Answer
from skyrl_nat.data.planner.ledger import FILE_NAME, Ledger
from skyrl_nat.data.planner.limits import Limiter
from skyrl_nat.data.planner.refusals import Billed
from skyrl_nat.errors import DataError, StoppedError

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}
PRICES = {"price_per_million_prompt": 1000.0, "price_per_million_completion": 2000.0}
"""0.001 for a token of the prompt, 0.002 for one of the answer."""
CHILD = """
import asyncio, json, sys
from pathlib import Path
from skyrl_nat.data.planner.ask import Planner
from skyrl_nat.config.planner import PlannerConfig

config, folder, schema, prompts = json.loads(sys.argv[1])

async def run():
    async with Planner(PlannerConfig(**config), Path(folder)) as planner:
        for prompt in prompts:
            await planner.ask(prompt, schema)

asyncio.run(run())
"""


def echo(prompt: str) -> Reply:
    return Reply(text=json.dumps({"n": prompt}))


def ask_each(server: PlannerServer, backend: str, folder: Path, *prompts: str, **how: Any):
    """Ask one after the other; return what became of them, errors included, and the planner."""

    async def run() -> tuple[list[Outcome | BaseException], Planner]:
        clock = VirtualClock()
        limiter = Limiter(60, 1e12, clock=clock, sleep=clock.sleep)
        async with server, Planner(server.config(backend, **how), folder, limiter=limiter) as planner:
            outcomes = []
            for prompt in prompts:
                outcomes += await asyncio.gather(planner.ask(prompt, SCHEMA), return_exceptions=True)
            return outcomes, planner

    return asyncio.run(run())


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / FILE_NAME).read_text().splitlines()]


def test_the_totals_are_what_the_server_counted(backend: str, tmp_path: Path):
    server = PlannerServer(
        Reply(status=500),
        Reply(status=429),
        Reply(text='{"n": 1}', usage=(100, 50)),  # breaks the schema
        Reply(text='{"n": "a"}', usage=(120, 40)),
        Reply(blocks_prompt="SAFETY", usage=(30, 0)),
        Reply(text='{"n": "c"', finish="length", usage=(7, 500)),
        Reply(text='{"n": "c"}', usage=(7, 600)),
    )
    _, planner = ask_each(server, backend, tmp_path, "a", "b", "c", **PRICES)
    totals = planner.ledger.totals
    assert totals.calls == len(server.calls) == 7
    assert [totals.prompt_tokens, totals.completion_tokens] == server.usage == [264, 1190]
    assert totals.cost == pytest.approx(0.264 + 2.38)
    assert totals.results == {"unavailable": 1, "rate_limited": 1, "answer": 5}
    assert planner.report()["outcomes"] == {"answered": 2, "blocked": 1}


def test_calls_without_a_count_are_estimated_by_what_the_server_may_have_done(backend: str, tmp_path: Path):
    """Turned away: nothing; server error: the prompt; no end in time: prompt and limit; no usage: prompt and text."""
    server = PlannerServer(
        Reply(status=429), Reply(status=500), Reply(how="never"), Reply(text='{"n": "abcd"}', usage=None)
    )
    prompt = "x" * 300
    outcomes, planner = ask_each(server, backend, tmp_path, prompt, timeout_s=0.4, max_tokens=1000, **PRICES)
    assert outcomes == [Answered({"n": "abcd"})]
    ordered = ', "propertyOrdering": ["n"]' if backend == "gemini" else ""
    schema = '{"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]' + ordered + "}"
    sent = 100 + -(-len(schema) // 3)
    costs = [0, 0.001 * sent, 0.001 * sent + 2, 0.001 * sent + 0.002 * 5]  # 13 bytes of text, 3 a token
    assert [line["cost"] for line in lines(tmp_path) if line["event"] == "done"] == pytest.approx(costs)
    assert planner.ledger.totals.estimated_cost == pytest.approx(sum(costs))
    assert planner.ledger.totals.cost == 0


def test_a_second_run_asks_nothing_that_was_answered(backend: str, tmp_path: Path):
    server = PlannerServer(
        Reply(text='{"n": 1}'), Reply(text='{"n": "a"}'), Reply(blocks_prompt="SAFETY"), Reply(text="", finish="length")
    )
    first, planner = ask_each(server, backend, tmp_path, "a", "b", "c", max_repairs=1)
    assert [outcome.kind for outcome in first if isinstance(outcome, Outcome)] == ["answered", "blocked", "cut"]
    later = PlannerServer(port=server.port)
    second, again = ask_each(later, backend, tmp_path, "a", "b", "c", max_repairs=1)
    assert second == first
    assert later.calls == []
    assert again.ledger.totals == planner.ledger.totals
    assert again.num_replayed == 5


@pytest.mark.parametrize("how", ["never", "trickle"])
def test_killed_in_the_middle_of_a_call_the_next_run_pays_only_for_what_was_not_answered(
    backend: str, tmp_path: Path, how: str
):
    names = ["a", "b", "c", "d", "e"]
    is_first = True

    def reply(prompt: str) -> Reply:
        return Reply(how=how) if is_first and prompt == "d" else echo(prompt)

    async def run() -> Planner:
        nonlocal is_first
        async with server:
            config = server.config(backend, max_tokens=1000, concurrency=1, **PRICES)
            told = {name: getattr(config, name) for name in PlannerConfig.__dataclass_fields__}
            given = json.dumps([told, str(tmp_path), SCHEMA, names])
            child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, given)
            await server.wait_for_calls(4)
            child.send_signal(signal.SIGKILL)
            assert await child.wait() == -signal.SIGKILL
            is_first = False
            async with Planner(config, tmp_path) as planner:
                assert [await planner.ask(name, SCHEMA) for name in names] == [Answered({"n": name}) for name in names]
                return planner

    server = PlannerServer(of_prompt=reply)
    planner = asyncio.run(run())
    assert [call.prompt for call in server.calls] == ["a", "b", "c", "d", "d", "e"]
    assert planner.num_replayed == 3
    totals = planner.ledger.totals
    assert totals.calls == len(server.calls)
    assert totals.results == {"answer": 5, "lost": 1}
    assert [totals.prompt_tokens, totals.completion_tokens] == server.usage == [500, 250]
    assert totals.cost == pytest.approx(5 * (0.1 + 0.1))
    [lost] = [line for line in lines(tmp_path) if line.get("result") == "lost"]
    assert totals.estimated_cost == lost["cost"] > 2  # 1000 tokens of answer at 0.002, and the prompt


def test_an_answer_that_nobody_waits_for_any_more_is_kept(backend: str, tmp_path: Path):
    async def run() -> Planner:
        async with server, Planner(server.config(backend), tmp_path) as planner:
            task = asyncio.create_task(planner.ask("a", SCHEMA))
            await server.wait_for_calls(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        with pytest.raises(StoppedError, match="this one is closed"):
            await planner.ask("b", SCHEMA)
        return planner

    server = PlannerServer(Reply(text='{"n": "a"}', how="slow"))
    totals = asyncio.run(run()).ledger.totals
    assert (totals.calls, totals.results, server.left) == (1, {"answer": 1}, 0)


def test_a_call_that_is_broken_off_with_its_process_is_charged_in_full(backend: str, tmp_path: Path):
    async def run() -> None:
        await server.__aenter__()
        planner = await Planner(server.config(backend, **PRICES, max_tokens=1000), tmp_path).__aenter__()
        asked.append(asyncio.create_task(planner.ask("a", SCHEMA)))
        await server.wait_for_calls(1)
        # The loop ends here and cancels all that runs, as after an interrupt.

    asked: list[asyncio.Task[Outcome]] = []
    server = PlannerServer(Reply(how="never"))
    asyncio.run(run())
    assert asked[0].cancelled()
    [_, done] = lines(tmp_path)
    assert done["result"] == "abandoned"
    assert done["cost"] > 2  # 1000 tokens of answer at 0.002, and the prompt


def test_the_budget_of_calls_stops_at_once_and_holds_in_the_next_run_too(backend: str, tmp_path: Path):
    server = PlannerServer(of_prompt=echo)
    outcomes, planner = ask_each(server, backend, tmp_path, "a", "b", "c", "d", max_calls=2)
    assert outcomes[:2] == [Answered({"n": "a"}), Answered({"n": "b"})]
    assert [type(outcome) for outcome in outcomes[2:]] == [StoppedError, StoppedError]
    assert "planner.max_calls = 2 calls, all are used" in str(outcomes[2])
    assert len(server.calls) == planner.ledger.totals.calls == 2
    later = PlannerServer(of_prompt=echo)
    [outcome], _ = ask_each(later, backend, tmp_path, "e", max_calls=2)
    assert isinstance(outcome, StoppedError)
    assert later.calls == []


def test_the_budget_of_money_is_never_passed_even_with_many_calls_under_way(backend: str, tmp_path: Path):
    """A call may cost 0.2 for the answer and about 0.03 for the prompt: of ten at once, four fit into 1."""

    async def run() -> tuple[list[Any], Planner]:
        how = {**PRICES, "max_tokens": 100, "max_cost": 1.0, "concurrency": 10}
        async with server, Planner(server.config(backend, **how), tmp_path) as planner:
            asked = [planner.ask(f"p{i}", SCHEMA) for i in range(10)]
            return await asyncio.gather(*asked, return_exceptions=True), planner

    server = PlannerServer(of_prompt=lambda prompt: Reply(text=json.dumps({"n": prompt}), usage=(30, 100)))
    outcomes, planner = asyncio.run(run())
    assert [type(outcome) for outcome in outcomes] == [Answered] * 4 + [StoppedError] * 6
    assert len(server.calls) == 4
    assert planner.ledger.spent == pytest.approx(4 * 0.23)
    assert "planner.max_cost = 1;" in str(outcomes[4])


def book(folder: Path, **how: Any) -> Ledger:
    return Ledger(folder, PlannerConfig(backend="openai", base_url="http://localhost/v1", **how))  # pyright: ignore


def test_torn_anywhere_in_its_last_line_a_ledger_keeps_every_line_before_it(tmp_path: Path):
    ledger = book(tmp_path)
    for i, key in enumerate("ab"):
        call = ledger.open_call(key, 10, 100)
        ledger.close_call(call, Answer(text=f"täxt {i}", prompt_tokens=10, completion_tokens=5))
    ledger.close()
    whole = ledger.path.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    for end in range(start, len(whole) + 1):
        ledger.path.write_bytes(whole[:end])
        torn = book(tmp_path)
        is_done = end >= len(whole) - 1  # only the line's end may be missing
        assert torn.answer("a") == Answer(text="täxt 0", prompt_tokens=10, completion_tokens=5)
        assert (torn.answer("b") is not None) == is_done
        assert torn.totals.results == ({"answer": 2} if is_done else {"answer": 1, "lost": 1})
        torn.fail_call(torn.open_call("c", 1, 1), "unavailable", Billed.nothing)
        torn.close()
        again = book(tmp_path)  # what was appended after the tear can be read
        assert again.totals.calls == 3
        again.close()


def test_a_line_before_the_last_that_is_broken_is_refused(tmp_path: Path):
    ledger = book(tmp_path)
    ledger.close_call(ledger.open_call("a", 1, 1), Answer(text="x"))
    ledger.close()
    ledger.path.write_bytes(b'{"event": \n' + ledger.path.read_bytes())
    with pytest.raises(DataError, match="line 1 is not"):
        book(tmp_path)


def test_one_process_at_a_time_holds_a_ledger(tmp_path: Path):
    ledger = book(tmp_path)
    with pytest.raises(DataError, match="one process at a time may hold"):
        book(tmp_path)
    ledger.close()
    book(tmp_path).close()


def test_a_call_is_on_disk_before_it_is_made_and_its_answer_before_the_next(backend: str, tmp_path: Path):
    found: list[list[str]] = []

    def reply(prompt: str) -> Reply:
        found.append([line["event"] for line in lines(tmp_path)])
        return echo(prompt)

    ask_each(PlannerServer(of_prompt=reply), backend, tmp_path, "a", "b")
    assert found == [["sent"], ["sent", "done", "sent"]]

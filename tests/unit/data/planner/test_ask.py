"""What becomes of one request: a checked object, or a typed reason (PL-02, PL-05, PL-07), over real HTTP."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from planner_server import PlannerServer, Reply, VirtualClock

from skyrl_nat.data.planner.ask import Answered, Blocked, Failed, Outcome, Planner
from skyrl_nat.data.planner.limits import Limiter
from skyrl_nat.data.planner.parsing import ProblemKind
from skyrl_nat.data.planner.refusals import RefusalKind
from skyrl_nat.errors import ConfigError, DataError, StoppedError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z_]+$"},
        "level": {"type": "integer", "minimum": 1, "maximum": 3},
        "kind": {"enum": ["text", "number"]},
    },
    "required": ["name", "level", "kind"],
    "additionalProperties": False,
}
GOOD = {"name": "round_up", "level": 2, "kind": "number"}
TEXT = json.dumps(GOOD)


def ask(server: PlannerServer, backend: str, folder: Path, *prompts: str, **how: Any) -> tuple[list[Outcome], Planner]:
    """Ask prompts one after the other; waits take no time."""

    async def run() -> tuple[list[Outcome], Planner]:
        clock = VirtualClock()
        async with server:
            limiter = Limiter(60, 1e9, clock=clock, sleep=clock.sleep)
            async with Planner(server.config(backend, **how), folder, limiter=limiter) as planner:
                return [await planner.ask(prompt, SCHEMA) for prompt in prompts or ("p",)], planner

    return asyncio.run(run())


def test_an_answer_is_a_checked_object_and_all_settings_reach_the_service(backend: str, tmp_path: Path):
    server = PlannerServer(Reply(text=TEXT))
    [outcome], planner = ask(server, backend, tmp_path, "Give a tool", max_tokens=777, temperature=0.5)
    assert outcome == Answered(GOOD)
    [call] = server.calls
    assert (call.prompt, call.max_tokens, call.temperature, call.seed) == ("Give a tool", 777, 0.5, 0)
    assert call.schema["required"] == ["name", "level", "kind"]
    assert planner.report()["outcomes"] == {"answered": 1}


def test_pl_02_an_answer_in_a_code_fence_is_taken_out_of_it(backend: str, tmp_path: Path):
    server = PlannerServer(Reply(text=f"```json\n{TEXT}\n```\n"))
    assert ask(server, backend, tmp_path)[0] == [Answered(GOOD)]
    assert len(server.calls) == 1


def test_pl_02_two_objects_are_refused_and_asked_again(backend: str, tmp_path: Path):
    server = PlannerServer(Reply(text=TEXT + "\n" + TEXT), Reply(text=TEXT))
    assert ask(server, backend, tmp_path)[0] == [Answered(GOOD)]
    assert server.calls[1].prompt == (
        "p\n\nAnswer 1 was refused: it holds more than one JSON object\n\nAnswer with one JSON object."
    )


def test_pl_02_two_objects_for_ever_fail_after_the_bound(backend: str, tmp_path: Path):
    server = PlannerServer(Reply(text=TEXT + TEXT))
    [outcome], planner = ask(server, backend, tmp_path, max_repairs=3)
    assert outcome == Failed(ProblemKind.several_objects, "it holds more than one JSON object")
    assert len(server.calls) == 4
    assert planner.outcomes == {"several_objects": 1}


@pytest.mark.parametrize("cut", ['{"tasks":[{"id":"a"', TEXT, ""])
def test_pl_02_a_cut_answer_is_never_accepted_but_asked_again_with_twice_the_limit(
    backend: str, tmp_path: Path, cut: str
):
    server = PlannerServer(Reply(text=cut, finish="length"), Reply(text=TEXT))
    assert ask(server, backend, tmp_path, max_tokens=100)[0] == [Answered(GOOD)]
    assert [(call.prompt, call.max_tokens) for call in server.calls] == [("p", 100), ("p", 200)]


def test_pl_02_an_answer_that_ends_in_the_middle_counts_as_cut_whatever_the_server_says(backend: str, tmp_path: Path):
    server = PlannerServer(Reply(text='{"name": "a", "lev', finish="stop"), Reply(text=TEXT))
    assert ask(server, backend, tmp_path, max_tokens=100)[0] == [Answered(GOOD)]
    assert [call.max_tokens for call in server.calls] == [100, 200]


def test_pl_02_answers_cut_for_ever_fail_at_the_ceiling(backend: str, tmp_path: Path):
    server = PlannerServer(Reply(text='{"name": "a"', finish="length"))
    how = {"max_tokens": 100, "max_tokens_ceiling": 250, "max_repairs": 9}
    [outcome], _ = ask(server, backend, tmp_path, **how)
    assert outcome == Failed(ProblemKind.cut, "it was cut at the limit of tokens")
    assert [call.max_tokens for call in server.calls] == [100, 200, 250]


def test_pl_07_a_violation_is_told_to_the_service_and_the_right_answer_taken(backend: str, tmp_path: Path):
    wrong = json.dumps({"name": "Round", "level": 0, "kind": "other"})
    server = PlannerServer(Reply(text=wrong), Reply(text=TEXT))
    [outcome], planner = ask(server, backend, tmp_path)
    assert outcome == Answered(GOOD)
    assert server.calls[1].prompt == (
        "p\n\nAnswer 1 was refused: $.kind: 'other' is not one of ['text', 'number']; "
        "$.level: 0 is less than the minimum of 1; $.name: 'Round' does not match '^[a-z_]+$'"
        "\n\nAnswer with one JSON object."
    )
    assert list(planner.dropped) == ["$: additionalProperties", "$.name: pattern"]


def test_pl_07_equal_violations_are_asked_anew_each_time_and_bounded(backend: str, tmp_path: Path):
    server = PlannerServer(Reply(text='{"name": "a", "level": 1}'))
    [outcome], planner = ask(server, backend, tmp_path, max_repairs=2)
    assert outcome == Failed(ProblemKind.off_schema, "$: 'kind' is a required property")
    assert len({call.prompt for call in server.calls}) == len(server.calls) == 3
    assert planner.num_replayed == 0


def test_pl_05_a_blocked_prompt_is_a_result_with_its_reason_and_the_run_goes_on(backend: str, tmp_path: Path):
    server = PlannerServer(Reply(blocks_prompt="PROHIBITED_CONTENT"), Reply(text=TEXT))
    outcomes, planner = ask(server, backend, tmp_path, "bad", "good")
    reason = "PROHIBITED_CONTENT" if backend == "gemini" else "refusal: PROHIBITED_CONTENT"
    assert outcomes == [Blocked(reason), Answered(GOOD)]
    assert [call.prompt for call in server.calls] == ["bad", "good"]
    assert planner.outcomes == {"blocked": 1, "answered": 1}


@pytest.mark.parametrize("text", [None, '{"name": "half'])
def test_pl_05_a_safety_finish_is_blocked_with_or_without_parts(backend: str, tmp_path: Path, text: str | None):
    server = PlannerServer(Reply(text=text, finish="content_filter"))
    reason = "SAFETY" if backend == "gemini" else "content_filter"
    assert ask(server, backend, tmp_path)[0] == [Blocked(reason)]
    assert len(server.calls) == 1


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_pl_05_an_empty_answer_is_blocked_and_not_asked_again(backend: str, tmp_path: Path, text: str | None):
    server = PlannerServer(Reply(text=text))
    assert ask(server, backend, tmp_path)[0] == [Blocked("empty answer")]
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "it is a list, not a JSON object"),
        ("Sure! " + TEXT, "it is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (TEXT + " Done.", "text follows its JSON object"),
        ('{"name": "a", "name": "b"}', "it is not JSON: an object names a key twice"),
        ('{"level": NaN}', "it is not JSON: NaN is no JSON number"),
        (f"```\n{TEXT}\n```\n```\n{TEXT}\n```", "it holds more than one JSON object"),
    ],
)
def test_pl_02_text_that_is_not_one_object_is_refused(tmp_path: Path, text: str, message: str):
    [outcome], _ = ask(PlannerServer(Reply(text=text)), "openai", tmp_path, max_repairs=0)
    assert isinstance(outcome, Failed)
    assert outcome.reason == message


def test_code_fences_inside_of_strings_are_left_alone(tmp_path: Path):
    schema = {"type": "object", "properties": {"code": {"type": "string"}}}
    value = {"code": "```python\nx = 1\n```"}

    async def run() -> Outcome:
        server = PlannerServer(Reply(text=f"```json\n{json.dumps(value)}\n```"))
        async with server, Planner(server.config("openai"), tmp_path) as planner:
            return await planner.ask("p", schema)

    assert asyncio.run(run()) == Answered(value)


def test_a_schema_that_cannot_be_used_is_refused_before_any_call(backend: str, tmp_path: Path):
    async def run(server: PlannerServer) -> None:
        async with server, Planner(server.config(backend), tmp_path) as planner:
            await planner.ask("p", {"type": "object"})

    server = PlannerServer()
    with pytest.raises(DataError, match=r"must name its properties, \$ names none"):
        asyncio.run(run(server))
    assert server.calls == []


def test_many_workers_share_the_slots_and_every_one_gets_its_own_answer(backend: str, tmp_path: Path):
    def reply(prompt: str) -> Reply:
        return Reply(text=json.dumps({**GOOD, "name": prompt}))

    async def run(server: PlannerServer) -> list[Outcome]:
        async with server, Planner(server.config(backend, concurrency=3), tmp_path) as planner:
            return await asyncio.gather(*(planner.ask("a" * n, SCHEMA) for n in range(1, 13)))

    server = PlannerServer(of_prompt=reply)
    assert asyncio.run(run(server)) == [Answered({**GOOD, "name": "a" * n}) for n in range(1, 13)]
    assert server.most_busy == 3


def test_the_same_request_at_the_same_time_is_paid_once_and_another_seed_is_another_request(
    backend: str, tmp_path: Path
):
    async def run(server: PlannerServer) -> int:
        async with server, Planner(server.config(backend), tmp_path) as planner:
            await asyncio.gather(*(planner.ask("p", SCHEMA, seed=seed) for seed in (0, 0, 1, 0)))
            return planner.num_replayed

    server = PlannerServer(Reply(text=TEXT))
    assert asyncio.run(run(server)) == 2
    assert sorted(call.seed for call in server.calls) == [0, 1]


def test_a_prompt_that_is_too_long_fails_alone_where_others_were_answered(backend: str, tmp_path: Path):
    long = Reply(status=400, name="INVALID_ARGUMENT", message="The input token count exceeds the maximum")
    server = PlannerServer(Reply(text=TEXT), long, Reply(text=TEXT))
    outcomes, planner = ask(server, backend, tmp_path, "a", "b", "c")
    assert [outcome.kind for outcome in outcomes] == ["answered", RefusalKind.denied, "answered"]
    assert "exceeds the maximum" in outcomes[1].reason
    assert len(server.calls) == 3, "it is not asked again"
    assert planner.ledger.totals.results == {"answer": 2, "denied": 1}


def test_a_service_that_refuses_the_first_request_is_not_asked_for_more(backend: str, tmp_path: Path):
    server = PlannerServer(Reply(status=400, name="INVALID_ARGUMENT", message="no such field"))
    with pytest.raises(ConfigError, match="no such field"):
        ask(server, backend, tmp_path, "a", "b")
    assert len(server.calls) == 1


def test_prompts_refused_one_after_the_other_stop_the_run(backend: str, tmp_path: Path):
    server = PlannerServer(Reply(text=TEXT), Reply(status=400, message="too long"))
    with pytest.raises(StoppedError, match="max_failures_in_a_row = 3"):
        ask(server, backend, tmp_path, *"abcdef", max_failures_in_a_row=3)
    assert len(server.calls) == 4

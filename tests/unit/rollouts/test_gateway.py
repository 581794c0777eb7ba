"""The gateway over a real socket with the real OpenAI client: recorded tokens, segments, refusals."""

import asyncio
import itertools
import json
from typing import Any

import aiohttp
import openai
import pytest
from open_gateway import (
    CALL,
    EOS,
    TOOLS,
    NumberCodec,
    ScriptedEngine,
    client_of,
    completion,
    dialogue,
    hermes_codec,
    open_gateway,
    open_session,
    run,
    says,
    user,
)
from tiny_model import make_tiny_tokenizer

from skyrl_nat.config.rollout import History
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.gateway import IGNORED_HEADER
from skyrl_nat.types import FinishReason


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def bits(mask: list[bool]) -> list[int]:
    return [int(bit) for bit in mask]


def test_a_dialogue_that_goes_on_goes_on_in_the_recorded_tokens() -> None:
    """Rows 42, 44, 46 and 56, MT-01: mask, log-probs and versions of every token, as the engine gave them."""

    async def scenario() -> None:
        engine = ScriptedEngine(completion([7, 8, 0]), completion([9, 0], version=4))
        async with dialogue(engine, NumberCodec()) as (session, ask):
            first = await ask([user("50")])
            assert first.choices[0].message.content == "7 8"
            assert first.choices[0].finish_reason == "stop"
            assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (3, 3)
            await ask([user("50"), first.choices[0].message, user("51")])
        draft = session.draft
        assert draft.token_ids == [100, 50, 102, 7, 8, 0, 201, 51, 9, 0]
        assert bits(draft.loss_mask) == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]
        assert draft.logprobs == [0, 0, 0, -0.5, -1.5, -2.5, 0, 0, -0.5, -1.5]
        assert draft.versions == [-1, -1, -1, 3, 3, 3, -1, -1, 4, 4]
        assert draft.segment_starts == [0]
        assert [request.prompt_token_ids for request in engine.requests] == [
            [100, 50, 102],
            [100, 50, 102, 7, 8, 0, 201, 51],
        ]
        assert engine.request_ids == ["train-0-0.0/0", "train-0-0.0/1"]
        assert draft.turns[0].observations == [user("51")]

    run(scenario())


@pytest.mark.parametrize(
    "messages",
    [
        [user("50"), assistant("7"), user("51")],
        [user("49"), assistant("7 8"), user("51")],
        [user("51")],
        [user("50"), assistant("7 8")],
        [user("50"), user("51")],
    ],
)
def test_a_rewritten_history_starts_a_segment_of_its_own(messages: list[Any]) -> None:
    """Row 43, MT-04: an answer changed, a question changed, condensed, nothing new, the answer left out."""

    async def scenario() -> None:
        engine = ScriptedEngine(completion([7, 8, 0]), completion([9, 0]))
        async with dialogue(engine, NumberCodec()) as (session, ask):
            await ask([user("50")])
            await ask(messages)
        anew = NumberCodec().prompt_tokens(messages)
        draft = session.draft
        assert draft.segment_starts == [0, 6]
        assert draft.token_ids == [100, 50, 102, 7, 8, 0, *anew, 9, 0]
        assert bits(draft.loss_mask) == [0, 0, 0, 1, 1, 1, *[0] * len(anew), 1, 1]

    run(scenario())


def test_parallel_calls_become_segments_and_either_can_go_on_in_its_own_tokens() -> None:
    """MT-04: two at once both extend the first answer; the one that goes on later brings its whole context."""

    async def scenario() -> None:
        answers = [completion([7, 0]), completion([8, 0]), completion([9, 0]), completion([6, 0])]
        async with dialogue(ScriptedEngine(*answers, delay_s=0.05), NumberCodec()) as (session, ask):
            start = [user("50"), (await ask([user("50")])).choices[0].message]
            one, two = await asyncio.gather(ask([*start, user("51")]), ask([*start, user("52")]))
            pairs = sorted([(one.choices[0].message, "51"), (two.choices[0].message, "52")], key=lambda p: p[0].content)
            message, question = pairs[0]
            await ask([*start, user(question), message, user("53")])
        draft = session.draft
        first = [100, 50, 102, 7, 0, 201]
        other = {"51": 52, "52": 51}[question]
        asked = int(question)
        assert draft.segment_starts == [0, 9, 18]
        assert draft.token_ids == [*first, asked, 8, 0, *first, other, 9, 0, *first, asked, 8, 0, 201, 53, 6, 0]
        assert bits(draft.loss_mask[18:]) == [0] * 11 + [1, 1], "what was trained once is context here"

    run(scenario())


def test_with_history_render_the_template_decides_what_is_an_extension() -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(completion([7, 8, 0]), completion([9, 0]))
        async with dialogue(engine, NumberCodec(), history=History.render) as (session, ask):
            await ask([user("50")])
            await ask([user("50"), assistant("7 8"), user("51")])
        assert session.draft.segment_starts == [0, 6]
        assert session.draft.token_ids[6:] == [100, 50, 7, 8, 51, 102, 9, 0]

    run(scenario())


def test_stop_words_of_run_and_client_are_asked_for_and_the_turn_is_closed_outside_the_loss() -> None:
    """Row 46: OpenAI leaves the client's own stop word out of the text; the tokens keep it."""

    async def scenario() -> None:
        engine = ScriptedEngine(completion([7, 8], FinishReason.STOP_WORD), completion([9, 0]))
        async with dialogue(engine, NumberCodec(), stop=["5"]) as (session, ask):
            first = await ask([user("50")], stop=["8", "5"])
            assert first.choices[0].message.content == "7 "
            assert first.choices[0].finish_reason == "stop"
            await ask([user("50"), first.choices[0].message, user("51")])
        assert engine.requests[0].sampling.stop == ("5", "8")
        assert session.draft.token_ids == [100, 50, 102, 7, 8, 0, 201, 51, 9, 0]
        assert bits(session.draft.loss_mask) == [0, 0, 0, 1, 1, 0, 0, 0, 1, 1]

    run(scenario())


def test_limits_of_a_request_lower_those_of_the_run_and_a_cut_answer_says_length() -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(says("cut", FinishReason.LENGTH))
        async with dialogue(engine) as (session, ask):
            answer = await ask([user("go")], max_completion_tokens=3, max_tokens=5)
            assert answer.choices[0].finish_reason == "length"
            await ask([user("go")], max_tokens=5000)
        assert [request.sampling.max_new_tokens for request in engine.requests] == [3, 64]
        assert session.draft.turns[0].finish_reason is FinishReason.LENGTH

    run(scenario())


def test_the_runs_own_sampling_is_used_and_the_answer_says_what_was_ignored() -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(says("x"))
        async with open_gateway(engine) as gateway:
            session = open_session(gateway)
            async with client_of(gateway, session) as client:
                raw = await client.chat.completions.with_raw_response.create(
                    model="gpt-9", messages=[user("go")], temperature=0.2, top_p=0.5, seed=3, frequency_penalty=0
                )
                assert raw.headers[IGNORED_HEADER] == "top_p,seed,temperature"
                assert raw.parse().model == "policy"
                same = await client.chat.completions.with_raw_response.create(
                    model="x", messages=[user("go")], temperature=1.0, top_p=1, logprobs=True
                )
                assert IGNORED_HEADER not in same.headers
                shown = same.parse().choices[0].logprobs.content
                assert [entry.logprob for entry in shown] == engine.answers[0].logprobs
                assert shown[-1].token == "<|im_end|>"
        assert engine.requests[0].sampling.temperature == 1.0
        assert session.draft.metrics["ignored_settings"] == 3

    run(scenario())


def test_tool_calls_make_the_round_trip_in_the_recorded_tokens() -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(says(f"I add.\n{CALL}\n{CALL}"), says("It is 3."))
        codec = hermes_codec()
        async with dialogue(engine) as (session, ask):
            first = await ask([user("1 + 2?")], tools=TOOLS)
            choice = first.choices[0]
            assert choice.finish_reason == "tool_calls"
            assert choice.message.content == "I add."
            calls = choice.message.tool_calls
            assert [json.loads(call.function.arguments) for call in calls] == [{"a": 1, "b": 2}] * 2
            assert len({call.id for call in calls}) == 2
            # As clients keep it: other keys, other order and spaces in the arguments.
            kept = choice.message.model_dump()
            kept["tool_calls"][0]["function"]["arguments"] = '{"b":2,"a":1}'
            results = [{"role": "tool", "tool_call_id": call.id, "content": "3"} for call in calls]
            second = await ask([user("1 + 2?"), kept, *results], tools=TOOLS)
            assert second.choices[0].message.content == "It is 3."
            assert second.choices[0].message.tool_calls is None
        prompt = codec.prompt_tokens([user("1 + 2?")], TOOLS)
        expected = [*prompt, *engine.answers[0].token_ids, *codec.continuation_tokens(results)]
        assert engine.requests[1].prompt_token_ids == expected
        assert session.draft.token_ids == [*expected, *engine.answers[1].token_ids]
        assert session.draft.segment_starts == [0]

    run(scenario())


@pytest.mark.parametrize("text", ["<tool_call>{broken}</tool_call>", "no call", '<tool_call>["add"]</tool_call>'])
def test_malformed_calls_stay_text(text: str) -> None:
    async def scenario() -> None:
        async with dialogue(ScriptedEngine(says(text))) as (_, ask):
            choice = (await ask([user("go")], tools=TOOLS)).choices[0]
            assert (choice.message.content, choice.message.tool_calls) == (text, None)
            assert choice.finish_reason == "stop"

    run(scenario())


def test_tools_that_the_template_does_not_show_are_refused_and_other_tools_are_another_dialogue() -> None:
    async def scenario() -> None:
        async with dialogue(ScriptedEngine(says("x"))) as (session, ask):
            first = await ask([user("go")])
            await ask([user("go"), first.choices[0].message, user("on")], tools=TOOLS)
            assert len(session.draft.segment_starts) == 2

        async with dialogue(ScriptedEngine(says("x")), ChatCodec(make_tiny_tokenizer())) as (session, ask):
            with pytest.raises(openai.BadRequestError, match="must show tools to the policy"):
                await ask([user("go")], tools=TOOLS)
            assert session.draft.token_ids == []

    run(scenario())


def test_streaming_gives_the_same_text_calls_and_usage() -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(says("caf\u00e9 \U0001f600"), says(CALL))
        async with dialogue(engine) as (session, ask):
            stream = await ask([user("go")], stream=True, stream_options={"include_usage": True})
            chunks = [chunk async for chunk in stream]
            assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "caf\u00e9 \U0001f600"
            assert [c.choices[0].finish_reason for c in chunks if c.choices] == [None, "stop"]
            assert chunks[-1].usage.completion_tokens == len(engine.answers[0].token_ids)
            stream = await ask([user("go")], tools=TOOLS, stream=True)
            deltas = [chunk.choices[0].delta async for chunk in stream]
            assert deltas[0].tool_calls[0].function.name == "add"
        assert len(session.draft.turns) == 2

    run(scenario())


def test_any_text_goes_in_and_comes_out_whole() -> None:
    """Row 42: halves of surrogate pairs, parts, controls; a sampled broken character is the usual mark."""

    async def scenario() -> None:
        engine = ScriptedEngine(completion([200, 201, EOS]), says("\u4f60\u597d"))
        async with open_gateway(engine) as gateway:
            session = open_session(gateway)
            url = f"{gateway.base_url(session)}/chat/completions"
            headers = {"Authorization": f"Bearer {session.api_key}"}
            part = '{"type": "text", "text": "a\\ud800\\u0000\\ud83d\\ude00"}'
            body = f'{{"messages": [{{"role": "user", "content": [{part}]}}]}}'
            async with aiohttp.ClientSession() as http, http.post(url, data=body, headers=headers) as reply:
                assert reply.status == 200
                message = (await reply.json())["choices"][0]["message"]
            async with client_of(gateway, session) as client:
                again = [user("a\ufffd\x00\U0001f600"), message, user("b")]
                answer = await client.chat.completions.create(model="m", messages=again)  # type: ignore[arg-type]
                assert answer.choices[0].message.content == "\u4f60\u597d"
        assert session.draft.segment_starts == [0]

    run(scenario())


def test_two_sessions_at_once_stay_apart_and_a_plain_base_url_finds_its_own_by_key() -> None:
    class Echo(ScriptedEngine):
        async def generate(self, request: Any) -> Any:
            await super().generate(request)
            return completion([300 + int(request.request_id.split("-")[2][0]), 0])

    async def scenario() -> None:
        async with open_gateway(Echo(completion([0]), delay_s=0.02), NumberCodec()) as gateway:
            sessions = [open_session(gateway, number) for number in range(2)]
            plain = gateway.base_url(sessions[0]).split("/rollouts")[0] + "/v1"

            async def play(session: Any, base_url: str) -> None:
                async with client_of(gateway, session, base_url=base_url) as client:
                    messages: list[Any] = [user("50")]
                    for _ in range(3):
                        answer = await client.chat.completions.create(model="m", messages=messages)
                        messages += [answer.choices[0].message, user("51")]
                    assert [model.id async for model in client.models.list()] == ["policy"]

            await asyncio.gather(play(sessions[0], plain), play(sessions[1], gateway.base_url(sessions[1])))
        for number, session in enumerate(sessions):
            assert session.draft.token_ids == [100, 50, 102, *([300 + number, 0, 201, 51] * 3)[:-2]]
            prompts = [turn.num_prompt_tokens for turn in session.draft.turns]
            assert all(later > earlier for earlier, later in itertools.pairwise(prompts))

    run(scenario())

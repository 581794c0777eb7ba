"""What is measured of a rollout while it is played, retried and judged."""

import asyncio
import contextvars
import json
from collections import Counter
from dataclasses import replace

import pytest
from scripted_group import TASK, Engine, World, make_runner, play, score_by_name

from skyrl_nat.errors import WorkerError
from skyrl_nat.monitoring import spans
from skyrl_nat.rollouts.environment_player import EnvironmentPlayer
from skyrl_nat.types import Outcome


@pytest.fixture
def seen():
    found: list[tuple[str, float, spans.Attributes]] = []
    end = spans.observe(lambda *one: found.append(one))
    yield found
    end()


def test_a_rollout_tells_of_its_turns_calls_verdict_and_end(seen) -> None:
    play(Engine(), World(turns=2))
    assert Counter(name for name, _, _ in seen) == {
        "turn": 2,
        "generate": 2,
        "environment": 3,
        "score": 1,
        "rollout": 1,
    }
    name, seconds, known = seen[-1]
    assert (name, known["kind"], known["outcome"], known["is_success"]) == ("rollout", "train", "finished", False)
    assert known["turns"] == 2
    assert seconds >= sum(took for part, took, _ in seen if part == "turn")
    tokens = [known["completion_tokens"] for name, _, known in seen if name == "generate"]
    assert tokens == [3, 3]


def test_a_failed_call_and_its_retry_are_both_told_of(seen) -> None:
    play(Engine(), World(turns=1, failing_steps=(1,)), max_retries=1)
    failed = [(name, known.get("error")) for name, _, known in seen if "error" in known]
    assert failed == [("environment", "WorkerError"), ("turn", "WorkerError")]
    assert [known["outcome"] for name, _, known in seen if name == "rollout"] == ["finished"]


def test_a_validator_without_a_verdict_is_told_of_call_by_call(seen) -> None:
    calls = 0

    async def score(task, rollout):
        nonlocal calls
        calls += 1
        if calls == 1:
            raise WorkerError("reward 0 must stay alive, it died")
        if calls == 2:
            return replace(rollout, outcome=Outcome.VALIDATOR_FAILURE, reason="timeout")
        return await score_by_name(task, rollout)

    play(Engine(), World(turns=1), score=score, max_retries=2)
    assert [known["is_verdict"] for name, _, known in seen if name == "score"] == [False, False, True]


def test_who_plays_and_who_waits_for_a_verdict_is_counted_also_when_all_is_given_up() -> None:
    async def scenario() -> list[tuple[int, int]]:
        judging = asyncio.Event()

        async def score(task, rollout):
            judging.set()
            await asyncio.sleep(60)

        runner = make_runner(Engine(), World(turns=1), score=score)
        playing = asyncio.ensure_future(runner.play_group(TASK, 0, num_rollouts=3, temperature=1.0))
        await asyncio.wait_for(judging.wait(), 10)
        await asyncio.sleep(0.05)
        counts = [(runner.num_playing, runner.num_scoring)]
        playing.cancel()
        await asyncio.wait([playing])
        return [*counts, (runner.num_playing, runner.num_scoring)]

    assert asyncio.run(scenario()) == [(0, 3), (0, 0)]


def test_a_request_from_outside_is_a_child_of_the_rollout_that_it_belongs_to(tmp_path) -> None:
    """The gateway answers in tasks of its own, which know no span."""

    class FromOutside(EnvironmentPlayer):
        async def play(self, task, attempt):
            asked = self._policy.ask(attempt, 0, [101, 102])
            await asyncio.create_task(asked, context=contextvars.Context())
            return await super().play(task, attempt)

    runner = make_runner(Engine(), World(turns=1))
    runner._player = FromOutside(runner._player._policy, World(turns=1))
    spans.trace_to(str(tmp_path), "test")
    try:
        asyncio.run(runner.play_group(TASK, 0, num_rollouts=1, temperature=1.0))
    finally:
        spans.end_traces()
    written = [json.loads(line) for line in next(tmp_path.iterdir()).read_text().splitlines()]
    names = {one["context"]["span_id"]: one["name"] for one in written}
    generated = [one for one in written if one["name"] == "generate"]
    assert [names[one["parent_id"]] for one in generated] == ["rollout", "turn"]
    assert len({one["context"]["trace_id"] for one in written}) == 1

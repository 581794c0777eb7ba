"""One group: masks, outcomes, retries, order; with a scripted engine and environment."""

import asyncio
import itertools
import math
from dataclasses import replace

import pytest
from scripted_group import EOS, TASK, VOCAB_SIZE, Codec, Engine, World, completion, make_runner, play

from skyrl_nat.config.rollout import History
from skyrl_nat.errors import EngineError
from skyrl_nat.rewards.validators import SAMPLED_TOKENS
from skyrl_nat.rollouts.policy_access import request_seed
from skyrl_nat.types import Completion, FinishReason, Outcome, Rollout


def test_loss_mask_is_true_exactly_on_sampled_tokens():
    """Rows 44, 46, 50; MT-01: the sampled end token is in, what the environment says is out."""
    rollout = play(Engine(), World(turns=2)).rollouts[0]
    assert rollout.token_ids == [101, 102, 7, 8, EOS, 201, 7, 8, EOS]
    assert rollout.loss_mask == [False, False, True, True, True, False, True, True, True]
    assert rollout.rollout_logprobs == [0.0, 0.0, -0.5, -0.5, -0.5, 0.0, -0.5, -0.5, -0.5]
    assert rollout.token_versions == [-1, -1, 3, 3, 3, -1, 3, 3, 3]
    assert rollout.outcome is Outcome.FINISHED


@pytest.mark.parametrize("history", History)
def test_the_judge_is_told_how_many_tokens_were_sampled(history):
    """Those of all turns, without prompts and observations; what the environment says of it does not count."""

    class Claiming(World):
        async def close(self, rollout_id):
            return {"files": {}, SAMPLED_TOKENS: 1}

    rollout = play(Engine({0: completion([7] * 5)}), Claiming(turns=3), history=history).rollouts[0]
    assert rollout.artifact == {"files": {}, SAMPLED_TOKENS: 5 + 3 + 3}


def test_later_prompts_start_with_the_exact_tokens_of_earlier_ones():
    """Row 42."""
    engine = Engine()
    play(engine, World(turns=3))
    prompts = [request.prompt_token_ids for request in engine.requests]
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(prompts))
    assert prompts[1] == [*prompts[0], 7, 8, EOS, 201]


def test_cut_turn_ends_the_rollout_without_a_made_up_end_token():
    """Rows 46 and 47; MT-02."""
    world = World(turns=3)
    rollout = play(Engine({0: completion([7, 8, 9], FinishReason.LENGTH)}), world).rollouts[0]
    assert rollout.token_ids == [101, 102, 7, 8, 9]
    assert (rollout.outcome, rollout.reason) == (Outcome.TRUNCATED, "token limit of a turn")
    assert world.actions == ["7 8 9"], "the environment still sees what was written"
    assert rollout.reward is not None


def test_a_turn_ended_by_a_stop_word_is_closed_by_a_token_that_is_not_trained():
    """Row 46: the end token that the policy did not sample is context; the last turn gets none."""
    stopped = completion([7, 8], FinishReason.STOP_WORD)
    engine = Engine({0: stopped, 1: stopped})
    rollout = play(engine, World(turns=2), stop=["8"]).rollouts[0]
    assert rollout.token_ids == [101, 102, 7, 8, EOS, 201, 7, 8]
    assert [int(bit) for bit in rollout.loss_mask] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert rollout.rollout_logprobs == [0.0, 0.0, -0.5, -0.5, 0.0, 0.0, -0.5, -0.5]
    assert rollout.token_versions == [-1, -1, 3, 3, -1, -1, 3, 3]
    assert rollout.outcome is Outcome.FINISHED
    assert [request.sampling.stop for request in engine.requests] == [("8",), ("8",)]
    assert engine.requests[1].prompt_token_ids == [101, 102, 7, 8, EOS, 201]


def test_total_token_budget_holds():
    """Row 55."""
    rollout = play(Engine(), World(turns=99), max_total_tokens=13, max_turns=50).rollouts[0]
    assert len(rollout.token_ids) <= 13
    assert rollout.outcome is Outcome.TRUNCATED
    assert len(rollout.token_ids) == len(rollout.loss_mask) == len(rollout.rollout_logprobs)


def test_request_never_asks_for_more_than_the_room_left():
    engine = Engine()
    play(engine, World(turns=2), max_total_tokens=12)
    assert [request.sampling.max_new_tokens for request in engine.requests] == [8, 6]


def test_turn_limit_truncates():
    rollout = play(Engine(), World(turns=99), max_turns=3).rollouts[0]
    assert (rollout.outcome, rollout.reason, len(rollout.turns)) == (Outcome.TRUNCATED, "turn limit", 3)


def test_environment_that_ends_by_a_limit_of_its_own_truncates():
    class Limited(World):
        async def step(self, rollout_id, action):
            return replace(await super().step(rollout_id, action), is_truncated=True)

    rollout = play(Engine(), Limited(turns=1)).rollouts[0]
    assert (rollout.outcome, rollout.reason) == (Outcome.TRUNCATED, "limit of the environment")
    assert rollout.reward is not None


def test_prompt_without_room_is_an_infrastructure_failure_and_says_so():
    """Row 54, EN-04: nothing is cut from a prompt."""
    rollout = play(Engine(), World(), max_total_tokens=2, max_new_tokens=1).rollouts[0]
    assert rollout.outcome is Outcome.INFRASTRUCTURE_FAILURE
    assert "this one has 2 tokens" in rollout.reason
    assert rollout.reward is None


def test_failed_engine_call_is_retried_and_then_has_no_reward():
    """Row 18: a failure is never a reward of 0."""
    retried = play(Engine({0: EngineError("gone")}), World()).rollouts[0]
    assert (retried.outcome, retried.metrics["retries"]) == (Outcome.FINISHED, 1)
    lost = play(Engine({i: EngineError("gone") for i in range(9)}), World()).rollouts[0]
    assert (lost.outcome, lost.reward, lost.reason) == (Outcome.INFRASTRUCTURE_FAILURE, None, "gone")


@pytest.mark.parametrize(
    "answer",
    [
        completion([7], FinishReason.ABORT),
        Completion(token_ids=[7, 8], logprobs=[-1.0], finish_reason=FinishReason.STOP, token_versions=[0, 0]),
        Completion(token_ids=[7], logprobs=[], finish_reason=FinishReason.STOP, token_versions=[0]),
        replace(completion([7, 8]), logprobs=[-1.0, math.nan]),
        replace(completion([7, 8]), logprobs=[-math.inf, -1.0]),
        replace(completion([7, 8]), logprobs=[-1.0, 0.5]),
        completion([7, VOCAB_SIZE]),
        completion([-1, 7]),
        {"text": "lorem ipsum"},
        None,
    ],
)
def test_aborted_incomplete_or_impossible_answers_are_retried_never_scored(answer):
    """EN-05 and EN-07."""
    rollout = play(Engine({0: answer}), World(turns=1)).rollouts[0]
    assert rollout.token_ids == [101, 102, 7, 8, EOS]
    assert rollout.metrics["retries"] == 1


def test_empty_completion_is_a_valid_row():
    """EN-07."""
    rollout = play(Engine({0: completion([])}), World(turns=1)).rollouts[0]
    assert (rollout.outcome, rollout.num_loss_tokens) == (Outcome.FINISHED, 0)
    assert rollout.reward is not None


def test_dead_environment_is_played_again_from_the_start():
    world = World(turns=2, failing_steps={2})
    rollout = play(Engine(), world).rollouts[0]
    assert rollout.outcome is Outcome.FINISHED
    assert rollout.token_ids == [101, 102, 7, 8, EOS, 201, 7, 8, EOS]
    assert world.open == {}, "no environment is left open"


def test_answers_stay_with_their_rollouts_when_they_come_in_another_order():
    """EN-01: eight rollouts, the last request is answered first."""

    class Echo(Engine):
        async def generate(self, request):
            number = int(request.request_id.split("-")[2].split(".")[0])
            await asyncio.sleep(0.01 * (8 - number))
            return completion([300 + number, EOS])

    group = play(Echo(), World(turns=1), num_rollouts=8)
    assert [rollout.token_ids[2] for rollout in group.rollouts] == [300 + number for number in range(8)]
    assert [rollout.artifact["files"]["a"] for rollout in group.rollouts] == [f"train-9-{n}.0" for n in range(8)]


def test_one_failing_rollout_leaves_its_siblings_alone():
    """EN-02."""

    class OneBad(Engine):
        async def generate(self, request):
            if request.request_id.startswith("train-9-5."):
                raise EngineError("bad")
            return completion([7, EOS])

    group = play(OneBad(), World(turns=1), num_rollouts=16)
    assert [i for i, rollout in enumerate(group.rollouts) if not rollout.outcome.is_trainable] == [5]
    assert len(group.valid_rollouts) == 15


def test_deadline_truncates_a_rollout_that_hangs():
    rollout = play(Engine(delay=lambda request: 5.0), World(), rollout_timeout_s=0.05).rollouts[0]
    assert (rollout.outcome, rollout.reason) == (Outcome.TRUNCATED, "rollout deadline of 0.05 s")


def test_every_request_has_a_seed_of_its_own_that_does_not_depend_on_retries():
    """Row 64."""
    seeds = {request_seed(0, f"train-{task}-{g}", turn) for task in range(8) for g in range(8) for turn in range(4)}
    assert len(seeds) == 256
    engine = Engine({0: EngineError("gone")})
    play(engine, World(turns=1))
    assert engine.requests[0].sampling.seed == engine.requests[1].sampling.seed == request_seed(5, "train-9-0", 0)


def test_cancellation_passes_through_and_leaves_nothing_running():
    async def scenario():
        runner = make_runner(Engine(delay=lambda request: 30), World(), score=None)
        task = asyncio.create_task(runner.play_group(TASK, 0, num_rollouts=4, temperature=1.0))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


class ForgetfulCodec(Codec):
    """A template that shows earlier answers without their first token: `[101, 102, 8, 0, 301]` after one turn."""

    def prompt_tokens(self, messages):
        tokens = [101, 102]
        for message in messages[1:]:
            is_answer = message["role"] == "assistant"
            tokens += [int(part) for part in message["content"].split()[1:]] if is_answer else [301]
        return tokens


class FaithfulCodec(ForgetfulCodec):
    def prompt_tokens(self, messages):
        tokens = [101, 102]
        for message in messages[1:]:
            tokens += [int(part) for part in message["content"].split()] if message["role"] == "assistant" else [301]
        return tokens


def play_rendered(codec) -> tuple[Engine, Rollout]:
    engine = Engine()
    return engine, play(engine, World(turns=2), codec=codec, history=History.render).rollouts[0]


def test_a_history_that_the_template_rewrites_becomes_a_segment_of_its_own():
    """Row 43, MT-04: never merged into one sequence; every segment is what the engine saw and sampled."""
    engine, rollout = play_rendered(ForgetfulCodec())
    assert rollout.segment_starts == [0, 5]
    assert rollout.token_ids == [101, 102, 7, 8, EOS, 101, 102, 8, EOS, 301, 7, 8, EOS]
    assert [int(bit) for bit in rollout.loss_mask] == [0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1]
    assert [request.prompt_token_ids for request in engine.requests] == [[101, 102], [101, 102, 8, EOS, 301]]
    assert [turn.num_prompt_tokens for turn in rollout.turns] == [2, 5]


def test_a_history_that_only_grows_stays_one_segment():
    """Row 43."""
    _, rollout = play_rendered(FaithfulCodec())
    assert rollout.segment_starts == [0]
    assert rollout.token_ids == [101, 102, 7, 8, EOS, 301, 7, 8, EOS]


class Ill(Engine):
    """Answers after a moment, but raises in request 5."""

    error: BaseException

    async def generate(self, request):
        if request.request_id.startswith("train-9-5."):
            raise self.error
        await asyncio.sleep(0.05)
        return completion([7, EOS])


@pytest.mark.parametrize("error", [RuntimeError("a bug"), asyncio.CancelledError()])
def test_what_ends_a_step_leaves_no_sibling_running_and_is_not_swallowed(error):
    """EN-02: a cancelled call, or an error of no type of ours, is neither a rollout nor forgotten."""

    async def scenario():
        engine = Ill()
        engine.error = error
        runner = make_runner(engine, World(turns=1), score=None)
        with pytest.raises((ExceptionGroup, asyncio.CancelledError)):
            await runner.play_group(TASK, 9, num_rollouts=16, temperature=1.0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(("length", "asked"), [(60, [4]), (64, []), (100, [])])
def test_a_prompt_near_the_limit_is_never_cut(length: int, asked: list[int], monkeypatch: pytest.MonkeyPatch):
    """EN-04: in 64 tokens a prompt of 60 leaves 4, one of 64 or 100 never reaches the engine and says so."""
    monkeypatch.setattr(Codec, "prompt_tokens", lambda self, messages: [9] * length)
    engine = Engine()
    rollout = play(engine, World(turns=1), max_new_tokens=32).rollouts[0]
    assert [request.sampling.max_new_tokens for request in engine.requests] == asked
    assert [len(request.prompt_token_ids) for request in engine.requests] == [length] * len(asked)
    assert (rollout.outcome is Outcome.FINISHED) == bool(asked)
    assert asked or f"this one has {length} tokens" in rollout.reason

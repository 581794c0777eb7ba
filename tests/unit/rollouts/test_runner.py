"""One group: masks, outcomes, retries, order; with a scripted engine and environment."""

import asyncio
import itertools
import math
from dataclasses import replace

import pytest

from skyrl_nat.config.rollout import History, RolloutConfig
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.errors import EngineError, WorkerError
from skyrl_nat.rollouts.environment_player import EnvironmentPlayer
from skyrl_nat.rollouts.policy_access import PolicyAccess, request_seed
from skyrl_nat.rollouts.runner import GroupRunner
from skyrl_nat.types import Completion, FinishReason, GenerationRequest, Outcome, RewardResult, Rollout, Task

TASK = Task(task_id="t", family="f", payload={"x": 1}, hidden={"secret": 2})
EOS = 0
VOCAB_SIZE = 400


class Codec:
    """Prompts are [101, 102], observations [201], a token's text is its number."""

    def prompt_tokens(self, messages):
        return [101, 102]

    def continuation_tokens(self, observations, *, is_closed=True):
        return [201] if is_closed else [EOS, 201]

    def decode(self, token_ids):
        return " ".join(map(str, token_ids))


class Engine:
    """Answers with `tokens`, or what `script` says for a call number."""

    def __init__(self, script=None, delay=lambda request: 0.0):
        self.requests: list[GenerationRequest] = []
        self.script = script or {}
        self.delay = delay

    async def generate(self, request: GenerationRequest) -> Completion:
        number = len(self.requests)
        self.requests.append(request)
        await asyncio.sleep(self.delay(request))
        answer = self.script.get(number)
        if isinstance(answer, Exception):
            raise answer
        return answer if number in self.script else completion([7, 8, EOS])


def completion(tokens, reason=FinishReason.STOP, version=3) -> Completion:
    return Completion(
        token_ids=list(tokens),
        logprobs=[-0.5] * len(tokens),
        finish_reason=reason,
        token_versions=[version] * len(tokens),
    )


class World:
    """Environments that end after `turns` turns."""

    def __init__(self, turns=2, failing_steps=()):
        self.turns = turns
        self.open: dict[str, int] = {}
        self.tasks: list[Task] = []
        self.steps = 0
        self.failing_steps = failing_steps
        self.actions: list[str] = []

    async def create(self, rollout_id, task):
        self.open[rollout_id] = 0
        self.tasks.append(task)
        return [{"role": "user", "content": "go"}]

    async def step(self, rollout_id, action):
        self.steps += 1
        self.actions.append(action)
        if self.steps in self.failing_steps:
            raise WorkerError("environment 0 must stay alive, it died")
        self.open[rollout_id] += 1
        done = self.open[rollout_id] >= self.turns
        return EnvironmentReply(observations=[{"role": "user", "content": "o"}], reward=0.25, is_done=done)

    async def close(self, rollout_id):
        self.open.pop(rollout_id, None)
        return {"files": {"a": rollout_id}}

    def abandon(self, rollout_id):
        self.open.pop(rollout_id, None)


async def score_by_name(task, rollout):
    return replace(rollout, reward=RewardResult(total=len(rollout.token_ids), parts={"n": 1.0}, is_success=False))


def make_runner(engine, world, *, score=score_by_name, codec=None, **config):
    settings = RolloutConfig(**{"max_turns": 4, "max_new_tokens": 8, "max_total_tokens": 64, **config})
    parts = {"codec": codec or Codec(), "seed": 5, "vocab_size": VOCAB_SIZE}
    policy = PolicyAccess(generate=engine.generate, config=settings, **parts)
    return GroupRunner(player=EnvironmentPlayer(policy, world), score=score, config=settings)


def play(engine, world, *, num_rollouts=1, **settings):
    runner = make_runner(engine, world, **settings)
    return asyncio.run(runner.play_group(TASK, 9, num_rollouts=num_rollouts, temperature=1.0))


def test_loss_mask_is_true_exactly_on_sampled_tokens():
    """Rows 44, 46, 50; MT-01: the sampled end token is in, what the environment says is out."""
    rollout = play(Engine(), World(turns=2)).rollouts[0]
    assert rollout.token_ids == [101, 102, 7, 8, EOS, 201, 7, 8, EOS]
    assert rollout.loss_mask == [False, False, True, True, True, False, True, True, True]
    assert rollout.rollout_logprobs == [0.0, 0.0, -0.5, -0.5, -0.5, 0.0, -0.5, -0.5, -0.5]
    assert rollout.token_versions == [-1, -1, 3, 3, 3, -1, 3, 3, 3]
    assert rollout.outcome is Outcome.FINISHED


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


def test_hidden_part_never_reaches_the_environment_or_the_record():
    world = World(turns=1)
    seen = []

    async def score(task, rollout):
        seen.append(task.hidden)
        return await score_by_name(task, rollout)

    group = play(Engine(), world, score=score)
    assert all(task.hidden == {} for task in world.tasks)
    assert all(rollout.task.hidden == {} for rollout in group.rollouts)
    assert seen == [{"secret": 2}]


def test_validator_failure_is_scored_again_and_then_left_out():
    calls = []

    async def score(task, rollout):
        calls.append(rollout.outcome)
        if len(calls) == 1:
            return replace(rollout, outcome=Outcome.VALIDATOR_FAILURE, reason="no verdict")
        return await score_by_name(task, rollout)

    assert play(Engine(), World(turns=1), score=score).rollouts[0].outcome is Outcome.FINISHED

    assert calls == [Outcome.FINISHED] * 2, "a rollout is scored as it was played"

    async def broken(task, rollout):
        raise WorkerError("reward 0 died")

    rollout = play(Engine(), World(turns=1), score=broken).rollouts[0]
    assert (rollout.outcome, rollout.reward, rollout.reason) == (Outcome.VALIDATOR_FAILURE, None, "reward 0 died")


def test_a_rollout_is_scored_while_others_are_played():
    """The slow one, number 1, ends only once number 0 has its verdict."""
    scored = asyncio.Event()

    class Slow(Engine):
        async def generate(self, request):
            if request.request_id.startswith("train-9-1"):
                await asyncio.wait_for(scored.wait(), 10)
            return await super().generate(request)

    async def score(task, rollout):
        if rollout.rollout_id == "train-9-1":
            await asyncio.sleep(0.05)
        else:
            scored.set()
        return await score_by_name(task, rollout)

    group = play(Slow(), World(turns=1), score=score, num_rollouts=2)
    assert [rollout.rollout_id for rollout in group.valid_rollouts] == ["train-9-0", "train-9-1"]
    assert group.score_s >= 0.05, "what was waited for after the last one was played"


def test_without_a_validator_the_step_rewards_add_up():
    rollout = play(Engine(), World(turns=3), score=None).rollouts[0]
    assert rollout.reward is not None
    assert rollout.reward.total == 0.75


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

"""A group played by a scripted engine in scripted environments."""

import asyncio
from dataclasses import replace

from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.errors import WorkerError
from skyrl_nat.rollouts.environment_player import EnvironmentPlayer
from skyrl_nat.rollouts.policy_access import PolicyAccess
from skyrl_nat.rollouts.runner import GroupRunner
from skyrl_nat.types import Completion, FinishReason, GenerationRequest, RewardResult, Task

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

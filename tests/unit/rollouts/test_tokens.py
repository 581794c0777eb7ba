"""Tokens of whole rollouts with a real tokenizer, for whatever is sampled and whatever is answered."""

import asyncio
import json
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import make_tiny_tokenizer

from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.environment_player import EnvironmentPlayer
from skyrl_nat.rollouts.policy_access import PolicyAccess
from skyrl_nat.rollouts.runner import GroupRunner
from skyrl_nat.types import Completion, FinishReason, GenerationRequest, Message, Rollout, Task

EOS = 2
PROMPT: list[Message] = [{"role": "user", "content": "go"}]
ANSWERS = st.lists(st.integers(3, 299), max_size=12)
"""Token ids that mostly spell no valid UTF-8, as a policy may sample them."""
TOOL_REPLIES = st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2).map(json.dumps)
OBSERVATIONS = st.one_of(st.text(max_size=20), TOOL_REPLIES)


@cache
def codec() -> ChatCodec:
    return ChatCodec(make_tiny_tokenizer())


def versions_of(turn: int, num_tokens: int) -> list[int]:
    """Return versions of an answer whose last token was sampled after a push."""
    return [2 * turn] * (num_tokens - 1) + [2 * turn + 1]


class Dialogue:
    """Engine and environment of one rollout, both scripted."""

    def __init__(self, turns: list[tuple[list[int], str]]) -> None:
        self.turns = turns
        self.prompts: list[list[int]] = []
        self.num_steps = 0

    async def generate(self, request: GenerationRequest) -> Completion:
        number = len(self.prompts)
        tokens = [*self.turns[number][0], EOS]
        self.prompts.append(request.prompt_token_ids)
        return Completion(
            token_ids=tokens,
            logprobs=[-float(token) for token in tokens],
            finish_reason=FinishReason.STOP,
            token_versions=versions_of(number, len(tokens)),
        )

    async def create(self, rollout_id: str, task: Task) -> list[Message]:
        return PROMPT

    async def step(self, rollout_id: str, action: str) -> EnvironmentReply:
        observation: Message = {"role": "user", "content": self.turns[self.num_steps][1]}
        self.num_steps += 1
        return EnvironmentReply(observations=[observation], reward=0.0, is_done=self.num_steps == len(self.turns))

    async def close(self, rollout_id: str) -> dict[str, Any]:
        return {}


def play(dialogue: Dialogue) -> Rollout:
    config = RolloutConfig(max_turns=9, max_new_tokens=64, max_total_tokens=4096)
    policy = PolicyAccess(generate=dialogue.generate, codec=codec(), config=config, seed=0)
    runner = GroupRunner(player=EnvironmentPlayer(policy, dialogue), score=None, config=config)
    task = Task(task_id="t", family="f", payload={})
    return asyncio.run(runner.play_group(task, 0, num_rollouts=1, temperature=1.0)).rollouts[0]


@settings(max_examples=60)
@given(st.lists(st.tuples(ANSWERS, OBSERVATIONS), min_size=1, max_size=4))
def test_training_tokens_are_what_was_prompted_and_sampled(turns: list[tuple[list[int], str]]) -> None:
    """Rows 42, 44 and 56, MT-01: nothing is made again from text; mask, version and log-prob are each token's own."""
    dialogue = Dialogue(turns)
    rollout = play(dialogue)
    tokens = codec().prompt_tokens(PROMPT)
    versions = [-1] * len(tokens)
    for number, (answer, observation) in enumerate(turns):
        assert dialogue.prompts[number] == tokens, "the engine saw exactly what is trained as context"
        tokens = [*tokens, *answer, EOS]
        versions += versions_of(number, len(answer) + 1)
        if number < len(turns) - 1:
            tokens = tokens + codec().continuation_tokens([{"role": "user", "content": observation}])
            versions += [-1] * (len(tokens) - len(versions))
    mask = [version >= 0 for version in versions]
    assert rollout.token_ids == tokens
    assert rollout.loss_mask == mask
    assert rollout.token_versions == versions
    assert rollout.rollout_logprobs == [-float(t) if kept else 0.0 for t, kept in zip(tokens, mask, strict=True)]

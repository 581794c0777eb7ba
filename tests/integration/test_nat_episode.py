"""A whole NAT agent written over several turns, through Ray actors, the real sandbox and NAT, up to the full reward.

The policy is a script, so that the episode is known; everything else is what a run uses.
"""

import asyncio
from pathlib import Path

import pytest
import small_run
from tiny_model import make_tiny_model

from skyrl_nat.batching.samples import build_samples
from skyrl_nat.config.load import load_config
from skyrl_nat.controller.opening import open_run
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.engines.pool import EnginePool
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.types import Completion, FinishReason, GenerationRequest, Outcome, RolloutGroup, Task

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
TASK = "trip_agent"
HARNESS = "rollout.harness=skyrl_nat.rollouts.harnesses.openai_client:make_harness"


def call(name: str, **parameters: str) -> str:
    """One function call as the policy writes it, cut at the stop word."""
    body = "".join(f"<parameter={key}>\n{value}</parameter>\n" for key, value in parameters.items())
    return f"I go on.\n<function={name}>\n{body}</function"


def script(task: Task) -> list[str]:
    """The turns: a wrong tool, a check, a mend, everything else, a look, the tests, the end."""
    solution = dict(task.hidden["solution"])
    right = solution.pop("agent/register.py")
    wrong = right.replace("celsius >= config.warm_from", "celsius > 1000")
    turns = [call("str_replace_editor", command="create", path="agent/register.py", file_text=wrong)]
    turns += [
        call("str_replace_editor", command="create", path=path, file_text=text) for path, text in solution.items()
    ]
    turns += [
        call("validate"),
        call(
            "str_replace_editor",
            command="str_replace",
            path="agent/register.py",
            old_str="celsius > 1000",
            new_str="celsius >= config.warm_from",
        ),
        call("execute_bash", command="ls agent && python -c 'print(6 * 7)' && echo done > notes.txt"),
        call("run_tests"),
        call("finish", message="done"),
    ]
    return turns


class ScriptedPolicy:
    """In place of the engines: the n-th request of a rollout is answered by the n-th turn."""

    def __init__(self, turns: list[str], codec: ChatCodec) -> None:
        self.codec = codec
        self.turns = [codec.encode(turn) for turn in turns]
        self.seen: list[tuple[GenerationRequest, Completion]] = []

    async def generate(self, request: GenerationRequest) -> Completion:
        tokens = self.turns[int(request.request_id.rpartition("/")[2])]
        completion = Completion(
            token_ids=list(tokens),
            logprobs=[-0.5] * len(tokens),
            finish_reason=FinishReason.STOP_WORD,
            token_versions=[0] * len(tokens),
        )
        self.seen.append((request, completion))
        return completion


def play(folder: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> tuple[RolloutGroup, ScriptedPolicy]:
    """Open a run with all its actors and play one group of one rollout."""
    task = next(item for item in load_tasks(["builtin:nat_agent/train"]) if item.payload["name"] == TASK)
    model = make_tiny_model(folder / "model", hidden_size=64)
    policy = ScriptedPolicy(script(task), ChatCodec.from_folder(model))
    monkeypatch.setattr(EnginePool, "generate", lambda pool, request: policy.generate(request))
    monkeypatch.setenv("PYTHONPATH", small_run.environment()["PYTHONPATH"])

    async def scenario() -> RolloutGroup:
        config = load_config(
            [
                f"model.path={model}",
                f"root_dir={folder / 'runs'}",
                "environment=nat_agent_multi_turn",
                "trainer.steps=1",
                "trainer.tasks_per_step=1",
                "trainer.rollouts_per_task=2",
                "rollout.max_turns=16",
                "rollout.max_new_tokens=8192",
                "rollout.max_total_tokens=60000",
                "trainer.micro_batch_tokens=60000",
                "tracking.backends=[jsonl]",
                *overrides,
            ]
        )
        async with open_run(config) as run:
            return await run.runner.play_group(task, 0, num_rollouts=1, temperature=1.0, label="eval")

    return asyncio.run(scenario()), policy


def check(group: RolloutGroup, policy: ScriptedPolicy) -> list[str]:
    """The reward is full and the sample holds exactly the tokens that were given and taken; returns observations."""
    [rollout] = group.rollouts
    assert rollout.outcome is Outcome.FINISHED, rollout.reason
    assert rollout.reward is not None
    assert (rollout.reward.total, rollout.reward.findings, rollout.reward.suspicions) == (1.0, [], [])
    assert len(rollout.turns) == len(policy.turns)
    [sample] = build_samples(group, [[0.0] * len(rollout.token_ids)], mask_truncated=False)
    sampled = [token for token, is_loss in zip(sample.token_ids, sample.loss_mask, strict=True) if is_loss]
    assert sampled == [token for turn in policy.turns for token in turn]
    for request, completion in policy.seen:
        given = request.prompt_token_ids
        assert sample.token_ids[: len(given)] == given
        assert sample.token_ids[len(given) : len(given) + len(completion.token_ids)] == completion.token_ids
        assert all(sample.loss_mask[len(given) : len(given) + len(completion.token_ids)])
    return [message["content"] for turn in rollout.turns for message in turn.observations]


def test_scripted_policy_writes_an_agent_from_first_turn_to_full_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, policy = play(tmp_path, monkeypatch)
    observations = check(group, policy)
    validated = next(text for text in observations if text.startswith("result of validate"))
    assert "packing_advice(25.0): expected" in validated
    assert any("42" in text for text in observations)
    assert any("3 of 3 tests pass" in text for text in observations)
    assert "notes.txt" in group.rollouts[0].artifact["files"]


@pytest.mark.long
def test_openai_client_plays_the_same_episode_through_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, policy = play(tmp_path, monkeypatch, HARNESS)
    check(group, policy)

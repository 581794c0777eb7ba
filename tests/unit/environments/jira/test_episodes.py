import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from tiny_model import make_tiny_tokenizer

from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.jira.catalogue import read_issue
from skyrl_nat.environments.jira.episodes import play_plan, reference_episodes
from skyrl_nat.environments.jira.machine import Machine
from skyrl_nat.environments.jira.optimum import optimal_return
from skyrl_nat.environments.jira.prompts import build_prompt
from skyrl_nat.environments.jira.text import JiraTextEnv
from skyrl_nat.environments.jira.validator import JiraValidator
from skyrl_nat.errors import DataError
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.dialogues import rollout_of_dialogue
from skyrl_nat.types import RewardResult, Task

SCRIPTS = Path(__file__).parents[4] / "scripts"


@pytest.mark.parametrize(("split", "num_tasks"), [("train", 240), ("validation", 72)])
def test_every_episode_earns_the_best_reward_and_the_best_return(split: str, num_tasks: int) -> None:
    tasks = load_tasks([f"builtin:jira/{split}"])
    episodes = list(reference_episodes(tasks))
    assert len(episodes) == num_tasks
    for task, episode in zip(tasks, episodes, strict=True):
        assert (episode["task_id"], episode["reward"]) == (task.task_id, 1.0)
        environment = JiraTextEnv({}, {"payload": task.payload, "max_turns": 10})
        assert episode["prompt"] == environment.init([])[0]
        answers = [message["content"] for message in episode["messages"] if message["role"] == "assistant"]
        outputs = [environment.step(answer) for answer in answers]
        told = [output["observations"][0] for output in outputs[:-1]]
        assert told == [message for message in episode["messages"] if message["role"] == "user"]
        assert [output["done"] for output in outputs] == [False] * (len(outputs) - 1) + [True]
        best = optimal_return(read_issue(task.payload["issue"]))
        assert environment.get_metrics()["return"] == pytest.approx(best)


def test_the_example_in_the_prompt_is_not_learned() -> None:
    [task] = load_tasks(["builtin:jira/train"])[:1]
    [episode] = reference_episodes([task])
    codec = ChatCodec(make_tiny_tokenizer())
    rollout = rollout_of_dialogue(episode, "0", codec)
    machine = Machine(read_issue(task.payload["issue"]))
    assert [turn.completion_text for turn in rollout.turns] == list(machine.plan)
    prompt = codec.prompt_tokens(build_prompt(machine))
    assert rollout.token_ids[: len(prompt)] == prompt
    assert not any(rollout.loss_mask[: len(prompt)]) and rollout.loss_mask[len(prompt)]


class Forgetful(JiraValidator):
    """Does not see the last call."""

    def validate(self, task: Task, artifact: dict[str, Any], *, seed: int = 0, is_final: bool = False) -> RewardResult:
        return super().validate(task, {"calls": artifact["calls"][:-1]}, seed=seed, is_final=is_final)


def test_a_plan_that_earns_less_is_refused() -> None:
    [task] = load_tasks(["builtin:jira/train"])[:1]
    with pytest.raises(DataError, match=r"a plan must earn 1, it earned .*the work was not ended"):
        play_plan(task, Forgetful())


def test_the_script_writes_the_same_episodes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    script = importlib.import_module("make_jira_tasks")
    for name in ("a", "b"):
        assert script.main([str(tmp_path), "--episodes", str(tmp_path / name)]) == 0
    for split, num in (("train", 240), ("validation", 72)):
        first, second = ((tmp_path / name / f"{split}_episodes.jsonl").read_bytes() for name in ("a", "b"))
        assert first == second
        assert len([json.loads(line) for line in first.splitlines()]) == num

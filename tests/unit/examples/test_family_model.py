"""The model that learns on two cores: its tokenizer says every word of a family, and a run can be made of it."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
from transformers import AutoModelForCausalLM

from skyrl_nat.config.load import load_config
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.jira.catalogue import load_workflows
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.dialogues import rollout_of_dialogue

FOLDER = Path(__file__).parents[3] / "examples/family_training"


@pytest.fixture
def family_model(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("family_model")


@pytest.mark.parametrize("family", ["jira", "task_dag"])
def test_held_out_dialogues_are_said_as_they_are_and_fit(
    family_model: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["family_model.py", family, str(tmp_path)])
    family_model.main()
    codec = ChatCodec.from_folder(tmp_path)
    config = load_config([f"experiment={family}_tiny_cpu"])
    tasks = load_tasks(
        config.environment.validation_files, family=family, max_difficulty=config.environment.max_difficulty
    )
    for episode in family_model.DIALOGUES[family](tasks):
        rollout = rollout_of_dialogue(episode, "0", codec)
        assert len(rollout.token_ids) <= config.rollout.max_total_tokens
        for turn in rollout.turns:
            assert codec.decode(codec.encode(turn.completion_text)) == turn.completion_text
            assert turn.num_completion_tokens <= config.rollout.max_new_tokens
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert 1e6 < model.num_parameters() < 4e6
    assert max(rollout.token_ids) < model.config.vocab_size <= family_model.VOCABULARY[family]


def test_every_tool_of_jira_is_one_token_so_that_no_name_is_made_of_halves(family_model: ModuleType) -> None:
    tokenizer = family_model.make_tokenizer(family_model.texts_of("jira"), family_model.WORDS["jira"], 1024)
    names = {name for workflow in load_workflows().values() for name in workflow.tool_names}
    assert {name: tokenizer.tokenize(name) for name in names} == {name: [name] for name in names}

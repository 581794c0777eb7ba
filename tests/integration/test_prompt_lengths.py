"""What docs/nat_agent.md says of the prompts' lengths, in tokens of the model that the examples train."""

from pathlib import Path

import pytest

from skyrl_nat.checkpoint.pretrained import resolve_model
from skyrl_nat.config.environment import Form
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.payload import parse_spec
from skyrl_nat.environments.nat_agent.prompts import build_prompt
from skyrl_nat.rollouts.chat import ChatCodec

DOC = Path(__file__).parents[2] / "docs/nat_agent.md"


@pytest.mark.parametrize(("form", "max_turns"), [(Form.one_shot, 2), (Form.multi_turn, 12)])
def test_documented_lengths_are_those_of_the_shipped_tasks(form: Form, max_turns: int) -> None:
    codec = ChatCodec.from_folder(resolve_model("smollm2-135m-instruct"))
    names = ("train", "validation", "library_train", "library_validation")
    tasks = load_tasks([f"builtin:nat_agent/{name}" for name in names])
    prompts = [build_prompt(parse_spec(task.payload), form, max_turns) for task in tasks]
    lengths = [len(codec.prompt_tokens(prompt)) for prompt in prompts]
    [row] = [line for line in DOC.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{form.value}`")]
    assert f"| {min(lengths)} to {max(lengths)} tokens |" in row

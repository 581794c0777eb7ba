"""Lengths in tokens of the model that the examples train: of prompts, and of what plans may take."""

from pathlib import Path

import pytest

from skyrl_nat.checkpoint.pretrained import resolve_model
from skyrl_nat.config.environment import Form
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.payload import parse_spec
from skyrl_nat.environments.nat_agent.prompts import build_prompt
from skyrl_nat.environments.task_dag.episodes import reference_answers
from skyrl_nat.environments.task_dag.payload import parse_hidden
from skyrl_nat.environments.task_dag.rewards import token_budget
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


def test_every_reference_plan_is_far_below_the_tokens_that_it_may_take() -> None:
    """The shares are those in docs/task_dag.md; end tokens count."""
    codec = ChatCodec.from_folder(resolve_model("smollm2-135m-instruct"))
    shares: list[float] = []
    for task in load_tasks(["builtin:task_dag/train", "builtin:task_dag/validation"]):
        answers = reference_answers(task)
        num_tokens = sum(len(codec.encode(text)) + 1 for text in answers)
        shares.append(num_tokens / token_budget(parse_hidden(task.hidden).reference))
    assert (round(min(shares), 2), round(max(shares), 2)) == (0.59, 0.69)

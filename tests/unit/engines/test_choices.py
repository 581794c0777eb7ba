"""One batched forward pass against scoring choices one by one."""

import logging
from pathlib import Path

import pytest
import torch
from tiny_model import make_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from skyrl_nat.engines.choices import ChoicePolicy
from skyrl_nat.errors import EngineError
from skyrl_nat.types import Message

pytestmark = pytest.mark.usefixtures("one_thread")

MESSAGES = [Message(role="system", content="Name a tool."), Message(role="user", content="Which one?")]
CHOICES = ["get", "get_issue", "close_issue", "a tool with a far longer name than any other", "é"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@torch.inference_mode()
def alone(folder: Path, choice: str, has_end: bool) -> tuple[float, int]:
    """Return the summed log-prob of one choice, without batch and padding, and its number of tokens."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False)
    tail = tokenizer(choice, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id] * has_end
    logprobs = model(torch.tensor([prompt + tail])).logits[0].log_softmax(-1)
    return sum(float(logprobs[len(prompt) - 1 + place, token]) for place, token in enumerate(tail)), len(tail)


@pytest.mark.parametrize("has_end", [True, False])
def test_batched_scores_are_those_of_one_by_one(folder: Path, has_end: bool) -> None:
    scores = ChoicePolicy(str(folder), has_end=has_end).score(MESSAGES, CHOICES)
    wanted = {choice: alone(folder, choice, has_end)[0] for choice in CHOICES}
    assert list(scores) == CHOICES
    assert scores == pytest.approx(wanted, abs=1e-4)
    assert len({alone(folder, choice, has_end)[1] for choice in CHOICES}) > 2


def test_all_choices_cost_one_forward_pass(folder: Path) -> None:
    policy = ChoicePolicy(str(folder))
    num_rows: list[int] = []
    policy._model.register_forward_pre_hook(
        lambda _, __, inputs: num_rows.append(len(inputs["input_ids"])), with_kwargs=True
    )
    policy.score(MESSAGES, CHOICES)
    assert num_rows == [len(CHOICES)]


def test_normalised_scores_are_means_over_tokens(folder: Path) -> None:
    policy = ChoicePolicy(str(folder), is_length_normalised=True)
    wanted = {choice: total / size for choice in CHOICES for total, size in [alone(folder, choice, True)]}
    assert policy.score(MESSAGES, CHOICES) == pytest.approx(wanted, abs=1e-4)


def test_best_is_the_highest_score_and_order_does_not_matter(folder: Path) -> None:
    policy = ChoicePolicy(str(folder))
    choice = policy.choose(MESSAGES, CHOICES)
    assert choice.best == max(CHOICES, key=lambda name: choice.scores[name])
    assert not choice.is_fallback
    turned = policy.choose(MESSAGES, CHOICES[::-1])
    assert turned.best == choice.best
    assert dict(turned.scores) == pytest.approx(dict(choice.scores), abs=1e-4)
    assert policy.choose(MESSAGES, ["é"]).scores["é"] == pytest.approx(choice.scores["é"], abs=1e-4)


@pytest.mark.parametrize("choices", [[], ["a", "a"], ["a", ""]])
def test_choices_that_cannot_be_told_apart_are_refused(folder: Path, choices: list[str]) -> None:
    with pytest.raises(ValueError, match="choices must be different strings that are not empty"):
        ChoicePolicy(str(folder)).choose(MESSAGES, choices)


def test_chat_beyond_the_context_is_refused(folder: Path) -> None:
    long = [Message(role="user", content="word " * 600)]
    with pytest.raises(EngineError, match="must fit into the model's context of 512 tokens"):
        ChoicePolicy(str(folder)).choose(long, CHOICES)


def test_missing_model_raises_without_a_fallback(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="must be a local folder"):
        ChoicePolicy(str(tmp_path))


def test_scores_that_are_not_finite_are_no_decision(folder: Path) -> None:
    policy = ChoicePolicy(str(folder))
    with torch.no_grad():
        policy._model.get_input_embeddings().weight.fill_(float("nan"))
    with pytest.raises(EngineError, match="scores must be finite"):
        policy.choose(MESSAGES, CHOICES)


def test_fallback_is_told_every_time_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    policy = ChoicePolicy(str(tmp_path), fallback=lambda messages, choices: choices[-1])
    with caplog.at_level(logging.WARNING):
        decisions = [policy.choose(MESSAGES, ["a", "b"]) for _ in range(3)]
    assert [(decision.best, dict(decision.scores), decision.is_fallback) for decision in decisions] == [
        ("b", {}, True)
    ] * 3
    assert policy.num_fallbacks == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert "RULE IN PLACE OF THE MODEL, decision 3" in caplog.records[-1].message


def test_fallback_is_not_asked_where_the_model_decides(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    policy = ChoicePolicy(str(folder), fallback=lambda messages, choices: "never")
    assert not policy.choose(MESSAGES, CHOICES).is_fallback
    assert (policy.num_fallbacks, caplog.records) == (0, [])


def test_fallback_must_name_a_choice(tmp_path: Path) -> None:
    policy = ChoicePolicy(str(tmp_path), fallback=lambda messages, choices: "other")
    with pytest.raises(EngineError, match="must return one of"):
        policy.choose(MESSAGES, ["a", "b"])

"""Checks of templates, on a good one and on broken ones."""

import pytest
from tiny_model import make_tiny_model
from transformers import AutoTokenizer

from skyrl_nat.config.rollout import History
from skyrl_nat.doctor.check import Check
from skyrl_nat.doctor.template import check_template
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.types import Message

PROMPTS: list[list[Message]] = [[{"role": "user", "content": "2 + 2?"}]]


@pytest.fixture
def tokenizer(tmp_path):
    return AutoTokenizer.from_pretrained(str(make_tiny_model(tmp_path)))


def checked(tokenizer, history: History = History.keep) -> dict[str, Check]:
    return {check.rows: check for check in check_template(ChatCodec(tokenizer), PROMPTS, history)}


def test_a_good_template_passes(tokenizer):
    found = checked(tokenizer)
    assert [check.verdict for check in found.values()] == ["ok", "ok", "note", "note", "ok", "ok"]
    assert found["43"].found == "yes"


def test_two_start_tokens_are_found(tokenizer):
    """Row 45."""
    tokenizer.add_special_tokens({"bos_token": "<s>"})
    template = tokenizer.chat_template
    tokenizer.chat_template = "<s>" + template
    assert checked(tokenizer)["45"].verdict == "ok"
    tokenizer.chat_template = "<s><s>" + template
    assert (checked(tokenizer)["45"].verdict, checked(tokenizer)["45"].found) == ("WRONG", "2")


def test_a_template_that_drops_reasoning_is_noted(tokenizer):
    """Row 43, MT-04."""
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "message['content']", "message['content'].split('</think>')[-1]"
    ).replace("message.content", "message.content.split('</think>')[-1]")
    assert checked(tokenizer, History.render)["43"].found.startswith("no")
    assert checked(tokenizer, History.render)["43, 44"].verdict == "note"


def test_turns_that_are_put_together_otherwise_than_rendered_are_found(tokenizer, monkeypatch):
    """Rows 43 and 44: a token too many between two turns."""
    right = ChatCodec.continuation_tokens
    monkeypatch.setattr(ChatCodec, "continuation_tokens", lambda self, messages: [*right(self, messages), 5])
    check = checked(tokenizer)["43, 44"]
    assert (check.verdict, check.is_needed) == ("WRONG", True)

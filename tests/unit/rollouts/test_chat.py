"""Messages to tokens, with a real tokenizer."""

import pytest
from tiny_model import make_tiny_model
from transformers import AutoTokenizer

from skyrl_nat.errors import ConfigError
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.types import Message

OBSERVATIONS: list[Message] = [{"role": "user", "content": "The result is 4.\n<|not special|> \u00e9\U0001f600"}]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return AutoTokenizer.from_pretrained(str(make_tiny_model(tmp_path_factory.mktemp("tiny"))))


def test_continuation_gives_what_the_template_would_give_for_the_whole_dialogue(tokenizer):
    """Rows 42 to 44: tokens are only added, separators between turns are there."""
    codec = ChatCodec(tokenizer)
    first: list[Message] = [{"role": "system", "content": "s"}, {"role": "user", "content": "2 + 2?"}]
    answer = "It is 4"
    sampled = [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    tokens = codec.prompt_tokens(first) + sampled + codec.continuation_tokens(OBSERVATIONS)
    whole = tokenizer.apply_chat_template(
        [*first, {"role": "assistant", "content": answer}, *OBSERVATIONS], tokenize=False, add_generation_prompt=True
    )
    assert tokenizer.decode(tokens) == whole


def test_an_answer_without_an_end_token_is_closed_as_the_template_closes_it(tokenizer):
    """Rows 42 and 46: what a stop word ended reads like a turn that the policy closed itself."""
    codec = ChatCodec(tokenizer)
    closed, open_ = codec.continuation_tokens(OBSERVATIONS), codec.continuation_tokens(OBSERVATIONS, is_closed=False)
    assert open_ == [tokenizer.eos_token_id, *closed]


def test_tools_go_through_the_template_where_it_has_a_place_for_them(tokenizer):
    template = "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}" + tokenizer.chat_template
    tools = [{"type": "function", "function": {"name": "add"}}]
    codec = ChatCodec(_with_template(tokenizer, template))
    assert codec.shows_tools(tools)
    assert codec.show(codec.prompt_tokens(OBSERVATIONS, tools)).startswith('<|im_start|>tools\n[{"type": "function"')
    assert not ChatCodec(tokenizer).shows_tools(tools)


def test_a_prompt_that_came_before_is_the_same_whatever_was_done_to_its_tokens(tokenizer):
    codec = ChatCodec(tokenizer)
    first = codec.prompt_tokens(OBSERVATIONS)
    kept = list(first)
    first.append(0)
    assert codec.prompt_tokens(OBSERVATIONS) == kept


def test_prompt_has_no_second_start_token(tokenizer):
    """Row 45."""
    codec = ChatCodec(tokenizer)
    tokens = codec.prompt_tokens([{"role": "user", "content": "hello"}])
    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hello"}], tokenize=False, add_generation_prompt=True
    )
    assert tokens.count(start) == text.count("<|im_start|>")


def test_template_that_rewrites_the_past_still_only_grows(tokenizer):
    """Row 43, MT-04: think blocks of earlier turns dropped by the template stay in our sequence."""
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}"
        "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    codec = ChatCodec(_with_template(tokenizer, template))
    sampled = [*tokenizer("<think>a</think>b", add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    prompt = codec.prompt_tokens([{"role": "user", "content": "q"}])
    second = prompt + sampled + codec.continuation_tokens(OBSERVATIONS)
    assert second[: len(prompt) + len(sampled)] == prompt + sampled
    assert tokenizer.decode(second).count("<think>a</think>b") == 1


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        (None, "must have a chat template"),
        ("{% for m in messages %}{{ m.content }}\n{% endfor %}", "must close an assistant message with the end token"),
        ("{{ messages[-1].content }}<|im_end|>", "must keep an assistant message"),
    ],
)
def test_templates_that_cannot_be_continued_are_refused(tokenizer, template: str | None, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        ChatCodec(_with_template(tokenizer, template))


def _with_template(tokenizer, template: str | None):
    import copy

    changed = copy.deepcopy(tokenizer)
    changed.chat_template = template
    return changed


def test_a_tokenizer_that_adds_a_start_token_of_its_own_adds_none_here(tokenizer):
    """Row 45: the template writes all start tokens; neither a prompt nor an observation gets a second one."""
    import copy

    from tokenizers.processors import TemplateProcessing

    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    adding = copy.deepcopy(tokenizer)
    adding.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", start)]
    )
    assert adding("hello")["input_ids"][0] == start, "this tokenizer really adds one"
    messages: list[Message] = [{"role": "user", "content": "hello"}]
    assert ChatCodec(adding).prompt_tokens(messages) == ChatCodec(tokenizer).prompt_tokens(messages)
    assert ChatCodec(adding).continuation_tokens(messages) == ChatCodec(tokenizer).continuation_tokens(messages)

"""What Ollama renders is what the chat template renders, or the export is refused."""

import re
from types import SimpleNamespace

import pytest
from go_template import execute
from tiny_model import CHAT_TEMPLATE, make_tiny_tokenizer

from skyrl_nat.errors import ExportError
from skyrl_nat.export.ollama_template import derive_template, strips_blanks

DEFAULT_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}"
    + CHAT_TEMPLATE
)
LLAMA = (
    "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] }}"
    "{{ '<|end_header_id|>\n\n' + message['content'] + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
FOLDED = (
    "{% for message in messages %}{% if message['role'] == 'user' %}[INST] {{ message['content'] }} [/INST]"
    "{% elif message['role'] == 'assistant' %} {{ message['content'] }}<|im_end|>{% else %}"
    "<<SYS>>{{ message['content'] }}<</SYS>>{% endif %}{% endfor %}"
)
COUNTING = CHAT_TEMPLATE.replace("message['role'] + '\n'", "message['role'] + '\n' + (messages|length)|string")
NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHAT_TEMPLATE
DIALOGUES = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": 'Say {"a": [1]}'}],
    [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two\nlines"},
        {"role": "user", "content": "three"},
    ],
]


def tokenizer(template: str):
    found = make_tiny_tokenizer()
    found.chat_template = template
    return found


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, DEFAULT_SYSTEM, LLAMA, FOLDED])
def test_ollama_s_template_renders_the_training_prompt(template: str):
    """EX-05."""
    source = tokenizer(template)
    found = derive_template(source, adds_bos=False)
    for dialogue in DIALOGUES:
        expected = source.apply_chat_template(dialogue, tokenize=False, add_generation_prompt=True)
        assert execute(found.go_text(), dialogue, system=found.default_system) == expected


def test_a_default_system_prompt_is_found():
    assert derive_template(tokenizer(DEFAULT_SYSTEM), adds_bos=False).default_system == "You are helpful."
    assert derive_template(tokenizer(CHAT_TEMPLATE), adds_bos=False).default_system == ""


def test_the_start_token_stands_in_a_prompt_once():
    source = tokenizer(LLAMA)
    found = derive_template(source, adds_bos=True)
    expected = source.apply_chat_template(DIALOGUES[1], tokenize=False, add_generation_prompt=True)
    assert source.bos_token + execute(found.go_text(), DIALOGUES[1]) == expected
    folded = tokenizer(FOLDED)
    with pytest.raises(ExportError, match=r"llama\.cpp puts '<\|im_start\|>' before every prompt"):
        derive_template(folded, adds_bos=True)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (COUNTING, "would become"),
        (NO_SYSTEM, "refuses ['system', 'user']: no system"),
        ("always the same", "a message stands in it 0 times"),
        (CHAT_TEMPLATE.replace("+ message['content'] +", "+ message['content'] + message['content'] +"), "2 times"),
        (CHAT_TEMPLATE.replace("<|im_start|>", "{{ '{{' }}"), "it refuses"),
    ],
)
def test_a_template_that_does_more_is_refused_with_the_reason(template: str, why: str):
    with pytest.raises(ExportError, match=re.escape(why)):
        derive_template(tokenizer(template), adds_bos=False)


def test_a_template_that_strips_blanks_is_noticed():
    assert strips_blanks(tokenizer(CHAT_TEMPLATE.replace("message['content']", "message['content'] | trim")))
    assert not strips_blanks(tokenizer(CHAT_TEMPLATE))


def test_braces_in_the_fixed_text_are_refused():
    def render(messages, **_):
        return "".join("{{" + each["content"] for each in messages)

    with pytest.raises(ExportError, match="its fixed text holds braces"):
        derive_template(SimpleNamespace(apply_chat_template=render, bos_token=""), adds_bos=False)

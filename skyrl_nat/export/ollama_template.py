"""From a chat template to Ollama's: the pieces around messages, found by rendering and proved by rendering.

Ollama's templates are Go's and cannot run Jinja. Most chat templates only put fixed text around messages; that text is
found with marks in the place of messages, and a template that does more than that is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from skyrl_nat.errors import ExportError
from skyrl_nat.types import Message

_SYSTEM, _USER, _ASSISTANT, _NEXT = "MARKsystem", "MARKuser", "MARKassistant", "MARKnext"
_TEXTS = ("Hi.", "two\nlines", '{"a": [1, 2]}', "naïve 你好 🙂")


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaTemplate:
    """Fixed text around messages."""

    head: str
    """What stands before the first message where there is no system message."""
    before_system: str
    after_system: str
    before_user: str
    after_user: str
    before_assistant: str
    after_assistant: str
    opening: str
    """Of the answer."""
    default_system: str = ""
    """What the chat template says where there is no system message; `head` is empty then."""

    def render(self, messages: Sequence[Message]) -> str:
        """Return what Ollama makes of a dialogue."""
        system = "\n\n".join(str(each["content"]) for each in messages if each["role"] == "system")
        text = f"{self.before_system}{system or self.default_system}{self.after_system}"
        if not system and not self.default_system:
            text = self.head
        for message in messages:
            if message["role"] == "user":
                text += f"{self.before_user}{message['content']}{self.after_user}"
            elif message["role"] == "assistant":
                text += f"{self.before_assistant}{message['content']}{self.after_assistant}"
        return text + self.opening

    def go_text(self) -> str:
        """Return the template as Ollama takes it; the default system prompt is not in it but in the Modelfile."""
        return (
            f"{{{{ if .System }}}}{self.before_system}{{{{ .System }}}}{self.after_system}"
            f"{{{{ else }}}}{self.head}{{{{ end }}}}"
            "{{ range .Messages }}"
            f'{{{{ if eq .Role "user" }}}}{self.before_user}{{{{ .Content }}}}{self.after_user}'
            f'{{{{ else if eq .Role "assistant" }}}}{self.before_assistant}{{{{ .Content }}}}{self.after_assistant}'
            f"{{{{ end }}}}{{{{ end }}}}{self.opening}"
        )


def derive_template(tokenizer: Any, *, adds_bos: bool) -> OllamaTemplate:
    """Return Ollama's template for a tokenizer's chat template.

    Args:
        tokenizer: Of the model.
        adds_bos: Whether llama.cpp puts the start token before every prompt, which the template must then not.

    Raises:
        ExportError: The chat template does more than put fixed text around messages, or llama.cpp would add a start
            token that training has not.
    """
    found = _pieces(tokenizer)
    for dialogue in _dialogues():
        expected, made = _render(tokenizer, dialogue), found.render(dialogue)
        if made != expected:
            raise _refusal(f"{expected!r} would become {made!r}")
    if not adds_bos:
        return found
    bos = str(tokenizer.bos_token or "")
    starts = found.head or found.before_system
    if not bos or not starts.startswith(bos) or not found.before_system.startswith(bos):
        raise _refusal(f"llama.cpp puts {bos!r} before every prompt, the chat template does not")
    return OllamaTemplate(
        **{name: getattr(found, name) for name in OllamaTemplate.__dataclass_fields__}
        | {"head": found.head.removeprefix(bos), "before_system": found.before_system.removeprefix(bos)}
    )


def strips_blanks(tokenizer: Any) -> bool:
    """Return whether the chat template takes blanks around messages away, which Ollama's cannot."""
    plain, wide = (_render(tokenizer, [{"role": "user", "content": text}]) for text in ("x", " x "))
    return plain == wide


def _pieces(tokenizer: Any) -> OllamaTemplate:
    user: Message = {"role": "user", "content": _USER}
    answer: Message = {"role": "assistant", "content": _ASSISTANT}
    alone = _render(tokenizer, [user], opens=False)
    start, after_user = _around(alone, _USER)
    _, tail = _around(_render(tokenizer, [user, answer], opens=False), _USER)
    between, after_assistant = _around(tail, _ASSISTANT)
    before_assistant = _rest(between, after_user)
    longer = _render(tokenizer, [user, answer, {"role": "user", "content": _NEXT}], opens=False)
    _, tail = _around(longer, _ASSISTANT)
    before_user = _rest(_around(tail, _NEXT)[0], after_assistant)
    opening = _rest(_render(tokenizer, [user]), alone)
    with_system = _render(tokenizer, [{"role": "system", "content": _SYSTEM}, user], opens=False)
    before_system, tail = _around(with_system, _SYSTEM)
    after_system = _around(tail, _USER)[0].removesuffix(before_user)
    head = start.removesuffix(before_user)
    default = ""
    if head.startswith(before_system) and head.endswith(after_system) and len(head) > len(before_system):
        default = head[len(before_system) : len(head) - len(after_system)]
    if any(mark in piece for piece in (start, between, head, opening) for mark in ("{{", "}}")):
        raise _refusal("its fixed text holds braces")
    return OllamaTemplate(
        head="" if default else head,
        before_system=before_system,
        after_system=after_system,
        before_user=before_user,
        after_user=after_user,
        before_assistant=before_assistant,
        after_assistant=after_assistant,
        opening=opening,
        default_system=default,
    )


def _dialogues() -> list[list[Message]]:
    """Return dialogues with and without a system message, of one to three turns."""
    found: list[list[Message]] = []
    for system, first, second in product(("", *_TEXTS[:2]), _TEXTS, _TEXTS[:2]):
        opening: list[Message] = [{"role": "system", "content": system}] if system else []
        turns: list[Message] = []
        for text in (first, second, first):
            turns.append({"role": "user", "content": text})
            found.append([*opening, *turns])
            turns.append({"role": "assistant", "content": second})
    return found


def _render(tokenizer: Any, messages: Sequence[Message], *, opens: bool = True) -> str:
    try:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=opens))
    except Exception as error:
        raise _refusal(f"it refuses {[each['role'] for each in messages]}: {error}") from error


def _around(text: str, mark: str) -> tuple[str, str]:
    before, found, after = text.partition(mark)
    if not found or mark in after:
        raise _refusal(f"a message stands in it {1 + after.count(mark) if found else 0} times")
    return before, after


def _rest(text: str, start: str) -> str:
    if not text.startswith(start):
        raise _refusal(f"{text!r} does not go on from {start!r}")
    return text[len(start) :]


def _refusal(why: str) -> ExportError:
    return ExportError(
        f"Ollama's template must render what the chat template renders, but {why}. Use --format gguf, and render "
        "prompts with the model's own template"
    )

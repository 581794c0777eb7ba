"""The part of Go's text/template that exports write, run as Ollama runs it; anything else is an assertion error."""

import re
from collections.abc import Sequence
from typing import Any

_ACTION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def execute(template: str, messages: Sequence[dict[str, Any]], system: str = "") -> str:
    """Return what Ollama renders for `/api/chat`.

    Args:
        template: Of the model.
        messages: Of the request.
        system: Of the model; comes first where the dialogue does not begin with one.
    """
    told = list(messages)
    if system and told[0]["role"] != "system":
        told.insert(0, {"role": "system", "content": system})
    nodes, rest = _parse(_tokens(template))
    assert not rest, f"{rest} is left"
    return _run(nodes, _collated(told))


def _collated(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what a template sees: neighbours of one role become one message, system messages also stand apart."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        if joined and joined[-1]["Role"] == message["role"]:
            joined[-1]["Content"] += "\n\n" + message["content"]
        else:
            joined.append({"Role": message["role"], "Content": message["content"]})
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    return {"System": system, "Messages": joined}


def _tokens(template: str) -> list[tuple[str, str]]:
    parts = _ACTION.split(template)
    assert not any("{{" in text or "}}" in text for text in parts[::2]), template
    found = [("text", text) if number % 2 == 0 else ("action", text.strip()) for number, text in enumerate(parts)]
    assert not any(text.startswith("-") or text.endswith("-") for kind, text in found if kind == "action")
    return [(kind, text) for kind, text in found if text]


def _parse(tokens: list[tuple[str, str]]) -> tuple[list[Any], list[tuple[str, str]]]:
    """Return nodes up to an `else` or `end`, and what follows from there."""
    nodes: list[Any] = []
    while tokens:
        (kind, text), *tokens = tokens
        word = text.split()[0] if kind == "action" else ""
        if word in ("else", "end"):
            return nodes, [(kind, text), *tokens]
        if word == "if":
            node, tokens = _branch(text[2:].strip(), tokens)
            nodes.append(node)
        elif word == "range":
            inner, rest = _parse(tokens)
            assert rest[0][1] == "end", rest[0]
            nodes.append(("range", text[5:].strip(), inner))
            tokens = rest[1:]
        else:
            nodes.append((kind, text))
    return nodes, []


def _branch(condition: str, tokens: list[tuple[str, str]]) -> tuple[Any, list[tuple[str, str]]]:
    then, rest = _parse(tokens)
    (_, text), *rest = rest
    if text == "end":
        return ("if", condition, then, []), rest
    assert text.startswith("else"), text
    if text == "else":
        other, rest = _parse(rest)
        assert rest[0][1] == "end", rest[0]
        return ("if", condition, then, other), rest[1:]
    node, rest = _branch(text.removeprefix("else").strip().removeprefix("if").strip(), rest)
    return ("if", condition, then, [node]), rest


def _run(nodes: list[Any], scope: dict[str, Any]) -> str:
    out = ""
    for node in nodes:
        if node[0] == "text":
            out += node[1]
        elif node[0] == "action":
            out += str(_field(node[1], scope))
        elif node[0] == "range":
            out += "".join(_run(node[2], each) for each in _field(node[1], scope))
        else:
            out += _run(node[2] if _holds(node[1], scope) else node[3], scope)
    return out


def _holds(condition: str, scope: dict[str, Any]) -> bool:
    if condition.startswith("eq "):
        _, name, text = condition.split()
        assert text.startswith('"') and text.endswith('"'), text
        return _field(name, scope) == text[1:-1]
    return bool(_field(condition, scope))


def _field(name: str, scope: dict[str, Any]) -> Any:
    assert re.fullmatch(r"\.[A-Z][a-zA-Z]*", name), name
    return scope[name[1:]]

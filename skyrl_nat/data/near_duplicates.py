"""Tasks that are nearly the same: by the words of what the policy reads, and by the code of what is right."""

import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from skyrl_nat.types import Task

NEAR = 0.7
"""Share of common word triples, of all of both, from which two tasks are near duplicates."""
_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?")


def shingles(task: Task) -> frozenset[tuple[str, ...]]:
    """Return the word triples of everything in a payload that says what is to be done; case and signs do not count."""
    words = _WORD.findall(" ".join(_said(task.payload)).lower().replace("_", " "))
    return frozenset(zip(words, words[1:], words[2:], strict=False)) or frozenset([tuple(words)])


def similarity(first: frozenset[tuple[str, ...]], second: frozenset[tuple[str, ...]]) -> float:
    """Return the Jaccard index, 1 for equal sets."""
    return len(first & second) / len(first | second)


def near_duplicates(tasks: Sequence[Task], others: Sequence[Task]) -> list[tuple[str, str, float]]:
    """Return the pairs of a task and another one that are near duplicates, with how near; exact, not sampled.

    Args:
        tasks: Looked at one by one.
        others: Looked for by their rarer triples.
    """
    known = [shingles(task) for task in others]
    places: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, found in enumerate(known):
        for shingle in found:
            places[shingle].append(number)
    pairs: list[tuple[str, str, float]] = []
    for task in tasks:
        own = shingles(task)
        common = Counter(number for shingle in own for number in places.get(shingle, ()))
        for number, count in common.items():
            share = count / (len(own) + len(known[number]) - count)
            if share >= NEAR:
                pairs.append((task.task_id, others[number].task_id, share))
    return pairs


def same_code(tasks: Sequence[Task], others: Sequence[Task]) -> list[tuple[str, str]]:
    """Return the pairs of a task and another one that have a function of the same code, whatever its names are."""
    known = {code: task.task_id for task in others for code in _codes(task)}
    return [(task.task_id, known[code]) for task in tasks for code in sorted(_codes(task)) if code in known]


def same_names(tasks: Sequence[Task], others: Sequence[Task]) -> list[tuple[str, str]]:
    """Return the pairs of a task and another one that have a function of the same name."""
    known = {name: task.task_id for task in others for name in function_names(task)}
    return [(task.task_id, known[name]) for task in tasks for name in function_names(task) if name in known]


def function_names(task: Task) -> list[str]:
    """Return the names of the functions that a task asks for."""
    return [function["name"] for function in _functions(task.payload)]


def _codes(task: Task) -> set[str]:
    """Return the references' sources with arguments and variables numbered in the order of their appearance.

    References that call other tools are left out: what they are is what those are.
    """
    return {
        f"{_numbered(item['source'])} {json.dumps(sorted(item.get('config', {}).values(), key=str))}"
        for item in task.hidden["reference"].values()
        if ".ainvoke(" not in item["source"]
    }


def _numbered(source: str) -> str:
    tree = ast.parse(source)
    own = [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
    own += [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    numbers = {name: f"v{number}" for number, name in enumerate(dict.fromkeys(own))}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.arg = numbers[node.arg]
        elif isinstance(node, ast.Name):
            node.id = numbers.get(node.id, node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "config":
            node.attr = "option"
        elif isinstance(node, ast.Raise):
            node.exc = None  # its words do not matter
    return ast.unparse(tree)


def fingerprint(task: Task) -> str:
    """Return what two tasks share exactly where they ask for the same: the payload without its name."""
    return json.dumps({name: value for name, value in task.payload.items() if name != "name"}, sort_keys=True)


def _said(payload: Mapping[str, Any]) -> Iterable[str]:
    """Yield what a payload says is to be done; how a package looks is the same for all."""
    yield payload.get("description", "")
    for tool in _functions(payload):
        yield tool["name"]
        yield tool["description"]
        yield from tool.get("behaviour", [])
        yield from (error["when"] for error in tool.get("errors", []))


def _functions(payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    function = payload["workflow"].get("function")
    return [*payload["tools"], *([function] if function else [])]

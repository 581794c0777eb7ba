"""The policy's answers: exactly one JSON object a turn, read strictly.

`{"action": "decompose", "node": "request", "subtasks": [{"id", "type", "description", "depends_on"}, ...]}` with 2 to
5 subtasks, or `{"action": "stop"}`. Nothing may stand around the object but blanks; keys come once and none is unknown.
`depends_on` may be left out where it is empty.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skyrl_nat.environments.task_dag.graph import Node
from skyrl_nat.environments.task_dag.ids import id_problem, normal_id, shown
from skyrl_nat.environments.task_dag.payload import Decomposition
from skyrl_nat.environments.task_dag.task_types import TYPES
from skyrl_nat.strict_json import refuse_constant

MIN_SUBTASKS, MAX_SUBTASKS = 2, 5
MAX_DESCRIPTION_CHARS = 200
MAX_ANSWER_CHARS = 20_000
_SUBTASK_KEYS = ("id", "type", "description", "depends_on")
IS_JSON, IS_ACTION, IS_LIST = 0.25, 0.5, 0.75
"""How far a broken answer got: an object; a known action with its keys; the right number of subtasks."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The plan is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """An answer that breaks the protocol."""

    reason: str
    """One sentence: what must hold, what was found, what to do."""
    share: float = 0.0
    """How far it got, in [0, 1)."""


class _BrokenError(ValueError):
    """Carries the reason up to `parse_answer`."""


def parse_answer(text: str) -> Decomposition | Stop | Broken:
    """Return what a completion says; whatever it is, nothing is raised.

    Args:
        text: The whole completion.
    """
    share = 0.0
    try:
        value = _read_object(text)
        share = IS_JSON
        action = value.get("action")
        if action == "stop":
            _check_keys(value, ("action",), "a stop")
            return Stop()
        if action != "decompose":
            raise _BrokenError(f"action must be 'decompose' or 'stop', got {shown(action)}. Choose one")
        _check_keys(value, ("action", "node", "subtasks"), "a decomposition")
        share = IS_ACTION
        node, items = _text(value, "node"), value["subtasks"]
        if not isinstance(items, list) or not MIN_SUBTASKS <= len(items) <= MAX_SUBTASKS:
            found = len(items) if isinstance(items, list) else shown(items)
            raise _BrokenError(
                f"subtasks must be a list of {MIN_SUBTASKS} to {MAX_SUBTASKS}, got {found}. Regroup them"
            )
        share = IS_LIST
        return Decomposition(node=node, subtasks=tuple(_subtask(item, node) for item in items))
    except _BrokenError as error:
        return Broken(reason=str(error), share=share)


def answer_text(decomposition: Decomposition | None) -> str:
    """Return a decomposition, or None for the stop, as the policy writes it."""
    if decomposition is None:
        return json.dumps({"action": "stop"})
    subtasks = [
        {"id": node.id, "type": node.type, "description": node.description, "depends_on": list(node.depends_on)}
        for node in decomposition.subtasks
    ]
    value = {"action": "decompose", "node": decomposition.node, "subtasks": subtasks}
    return json.dumps(value, ensure_ascii=False)


def _read_object(text: str) -> dict[str, Any]:
    if len(text) > MAX_ANSWER_CHARS:
        raise _BrokenError(f"an answer must have at most {MAX_ANSWER_CHARS} characters, got {len(text)}. Shorten it")
    try:
        value = json.loads(text, parse_constant=refuse_constant, object_pairs_hook=_without_twins)
    except _BrokenError:
        raise
    except (ValueError, RecursionError) as error:
        what = "it nests too deeply" if isinstance(error, RecursionError) else str(error)[:100]
        raise _BrokenError(
            f"an answer must be one JSON object and nothing else, got {shown(text)} ({what}). Write the object only"
        ) from error
    if not isinstance(value, dict):
        raise _BrokenError(f"an answer must be one JSON object, got {shown(value)}. Write {{...}}")
    return value


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise _BrokenError(f"every key must come once, got {shown([key for key, _ in pairs])}. Remove one")
    return value


def _check_keys(value: Mapping[str, Any], keys: tuple[str, ...], what: str, optional: tuple[str, ...] = ()) -> None:
    missing = [key for key in keys if key not in value and key not in optional]
    unknown = [key for key in value if key not in keys]
    if missing or unknown:
        raise _BrokenError(f"{what} must have the keys {', '.join(keys)}, got {shown(list(value))}. Write just these")


def _text(value: Mapping[str, Any], key: str) -> str:
    text = value[key]
    if not isinstance(text, str) or not text.isprintable():
        raise _BrokenError(f"{key} must be text on one line, got {shown(text)}. Quote it")
    return text


def _subtask(item: Any, parent: str) -> Node:
    if not isinstance(item, dict):
        raise _BrokenError(f"a subtask must be an object, got {shown(item)}. Write {{...}}")
    _check_keys(item, _SUBTASK_KEYS, "a subtask", optional=("depends_on",))
    name, kind, description = normal_id(_text(item, "id")), _text(item, "type"), _text(item, "description")
    if problem := id_problem(name):
        raise _BrokenError(problem)
    if kind not in TYPES:
        raise _BrokenError(f"type must be one of {', '.join(TYPES)}, got {shown(kind)}. Choose one")
    if not 0 < len(description.strip()) <= MAX_DESCRIPTION_CHARS:
        raise _BrokenError(
            f"a description must have 1 to {MAX_DESCRIPTION_CHARS} characters, got {len(description.strip())}. Say "
            "what is to be done"
        )
    others = item.get("depends_on", [])
    if not isinstance(others, list):
        raise _BrokenError(f"depends_on must be a list of ids, got {shown(others)}. Write []")
    names = tuple(_text({"depends_on": other}, "depends_on") for other in others)
    return Node(id=name, type=kind, description=description.strip(), depends_on=names, parent=normal_id(parent))

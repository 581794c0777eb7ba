"""JSON schemas: reduced to what a service accepts, and held in full against every answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skyrl_nat.config.planner import Backend
from skyrl_nat.errors import DataError

KEPT = ("description", "minItems", "maxItems", "minimum", "maximum")
"""Words that travel as they are."""
NO_RULES = frozenset(
    ("title", "default", "examples", "$schema", "$id", "$comment", "$defs", "definitions", "deprecated", "readOnly")
)
"""Words that forbid nothing, and are left out without a word."""
SHAPE = frozenset(("type", "nullable", "enum", "const", "properties", "required", "items"))
"""Words that `_Reducer` reads."""
MAX_ERRORS = 5
MAX_MESSAGE = 300
Node = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reduced:
    """A schema that a service accepts, wider than the full one wherever it can be."""

    schema: Node
    dropped: tuple[str, ...]
    """Rules that it does not hold, and types that it does not offer: `$.tools[].name: pattern`."""


def reduce_schema(schema: Mapping[str, Any], backend: Backend) -> Reduced:
    """Return the part of a schema that a service accepts.

    References are written out, alternatives are merged into one form, and what is left over is dropped.

    Args:
        schema: JSON schema, draft 2020-12.
        backend: Gemini says null with the word `nullable`, has enums of strings only and emits fields in a given
            order; servers of OpenAI's protocol say null by a second type.

    Raises:
        DataError: It has no valid form, refers to itself, or leaves a value free of any type.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise DataError(
            f"a planner's schema must be a JSON schema, it breaks the rules at {error.json_path}: {error.message}. "
            "Mend it"
        ) from error
    reducer = _Reducer(schema, backend)
    reduced = reducer.finish(reducer.reduce(schema, "$", ("#",)))
    return Reduced(reduced, tuple(dict.fromkeys(reducer.dropped)))


def violations(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with an answer under the full schema, the first few sentences of it."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    errors = sorted(Draft202012Validator(schema).iter_errors(value), key=lambda error: error.json_path)
    deepest = [best_match([error]) or error for error in errors[:MAX_ERRORS]]
    return [f"{error.json_path}: {error.message[:MAX_MESSAGE]}" for error in deepest]


class _Reducer:
    """Reduces one schema. Nodes say null by `nullable` until `finish`."""

    def __init__(self, root: Mapping[str, Any], backend: Backend) -> None:
        self._root = root
        self._is_gemini = backend is Backend.gemini
        self.dropped: list[str] = []

    def reduce(self, node: Any, path: str, seen: tuple[str, ...]) -> Node:
        node, seen = self._write_out(node, path, seen)
        options, word = _options(node)
        if word:
            base = {key: value for key, value in node.items() if key not in (word, "type")}
            given = node.get("type") if word != "type" else None
            base |= {"type": given} if given else {}
            return self._choose(base, options, f"{path}: {word}", path, seen)
        return self._flat(node, path, seen)

    def finish(self, node: Node) -> Node:
        """Say null, and the order of fields, as the service wants it."""
        node = dict(node)
        if "properties" in node:
            node["properties"] = {name: self.finish(part) for name, part in node["properties"].items()}
            if self._is_gemini:
                node["propertyOrdering"] = list(node["properties"])
        if "items" in node:
            node["items"] = self.finish(node["items"])
        if not self._is_gemini and node.pop("nullable", False):
            node["type"] = [node["type"], "null"]
            if "enum" in node:
                node["enum"] = [*node["enum"], None]
        return node

    def _write_out(self, node: Any, path: str, seen: tuple[str, ...]) -> tuple[Node, tuple[str, ...]]:
        """Put what references and `allOf` stand for in their place."""
        if not isinstance(node, Mapping):
            raise _untyped(path, node)
        node = dict(node)
        while "$ref" in node or "allOf" in node:
            if "$ref" in node:
                ref = node.pop("$ref")
                if ref in seen:
                    raise DataError(
                        f"a planner's schema must not refer to itself, {path} leads to {ref} again. "
                        "Write out as many levels as are needed"
                    )
                seen = (*seen, ref)
                node = _overlay(_follow(self._root, ref, path), node)
            for part in node.pop("allOf", []):
                part, seen = self._write_out(part, path, seen)
                node = _overlay(part, node)
        return node, seen

    def _choose(self, base: Node, options: Sequence[Any], what: str, path: str, seen: tuple[str, ...]) -> Node:
        """Merge alternatives; null among them only makes the node nullable."""
        is_null = [isinstance(option, Mapping) and option.get("type") == "null" for option in options]
        forms = [
            self.reduce(_overlay(dict(option), base) if isinstance(option, Mapping) else option, path, seen)
            for option, is_nothing in zip(options, is_null, strict=True)
            if not is_nothing
        ]
        if not forms:
            raise _untyped(path, {"type": "null"})
        merged = forms[0]
        if len(forms) > 1:
            self.dropped.append(f"{what} of {len(forms)} forms")
            merged = self._merge(forms, path)
        return {**merged, "nullable": True} if any(is_null) else merged

    def _merge(self, forms: Sequence[Node], path: str) -> Node:
        """Return a form that allows what any of several forms allows; of different types only the first's."""
        kinds = {form["type"] for form in forms}
        if kinds == {"integer", "number"}:
            forms = [{**form, "type": "number"} for form in forms]
        elif len(kinds) > 1:
            self.dropped.append(f"{path}: types other than {forms[0]['type']}")
            forms = [form for form in forms if form["type"] == forms[0]["type"]]
        merged: Node = {"type": forms[0]["type"]}
        if any(form.get("nullable") for form in forms):
            merged["nullable"] = True
        for word in (*KEPT, "enum"):
            values = [form[word] for form in forms if word in form]
            if word == "description" and values:
                merged[word] = values[0]
            elif len(values) == len(forms):
                merged[word] = _widest(word, values)
        if merged["type"] == "object":
            names = dict.fromkeys(name for form in forms for name in form["properties"])
            merged["properties"] = {
                name: self._merge(
                    [form["properties"][name] for form in forms if name in form["properties"]], f"{path}.{name}"
                )
                for name in names
            }
            merged["required"] = [name for name in names if all(name in form.get("required", []) for form in forms)]
        if merged["type"] == "array":
            merged["items"] = self._merge([form["items"] for form in forms], f"{path}[]")
        return merged

    def _flat(self, node: Node, path: str, seen: tuple[str, ...]) -> Node:
        """Reduce a node without references and alternatives."""
        self.dropped += [f"{path}: {word}" for word in node if word not in {*KEPT, *NO_RULES, *SHAPE}]
        values = [node["const"]] if "const" in node else node.get("enum", [])
        reduced: Node = {"type": node.get("type") or _type_of(node, values, path)}
        if reduced["type"] == "null":
            raise _untyped(path, node)
        reduced |= {word: node[word] for word in KEPT if word in node}
        if node.get("nullable") or None in values:
            reduced["nullable"] = True
        values = [value for value in values if value is not None]
        if values and self._is_gemini and not all(isinstance(value, str) for value in values):
            self.dropped.append(f"{path}: enum of values that are no strings")
        elif values:
            reduced["enum"] = values
        if reduced["type"] == "object":
            reduced |= self._fields(node, path, seen)
        if reduced["type"] == "array":
            reduced["items"] = self.reduce(node.get("items", {}), f"{path}[]", seen)
        return reduced

    def _fields(self, node: Node, path: str, seen: tuple[str, ...]) -> Node:
        fields = node.get("properties")
        if not fields:
            raise DataError(
                f"every object of a planner's schema must name its properties, {path} names none. "
                "Name them, use a list of named pairs, or ask for a string that holds JSON"
            )
        parts = {name: self.reduce(part, f"{path}.{name}", seen) for name, part in fields.items()}
        return {"properties": parts, "required": [name for name in node.get("required", []) if name in parts]}


def _options(node: Node) -> tuple[Sequence[Any], str]:
    """Return the alternatives of a node and the word that gives them, empty if there are none."""
    for word in ("anyOf", "oneOf"):
        if word in node:
            return node[word], word
    if isinstance(node.get("type"), list):
        return [{"type": kind} for kind in node["type"]], "type"
    return [], ""


def _overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> Node:
    """Return both nodes in one: fields of both, else the upper one's words."""
    both = {**below, **above}
    for word, join in (("properties", lambda a, b: {**a, **b}), ("required", lambda a, b: list(dict.fromkeys(a + b)))):
        if word in below and word in above:
            both[word] = join(below[word], above[word])
    if "allOf" in below and "allOf" in above:
        both["allOf"] = [*below["allOf"], *above["allOf"]]
    return both


def _follow(root: Mapping[str, Any], ref: str, path: str) -> Mapping[str, Any]:
    target: Any = root
    try:
        if not ref.startswith("#/"):
            raise KeyError(ref)
        for part in ref[2:].split("/"):
            target = target[part.replace("~1", "/").replace("~0", "~")]
    except (KeyError, TypeError) as error:
        raise DataError(
            f"a reference of a planner's schema must lead to a place in it, like #/$defs/tool; {path} has {ref}"
        ) from error
    return target


def _type_of(node: Node, values: Sequence[Any], path: str) -> str:
    """Return the type that a node implies."""
    if "properties" in node:
        return "object"
    if "items" in node:
        return "array"
    names = {bool: "boolean", str: "string", int: "integer", float: "number"}
    kinds = {names.get(type(value), "") for value in values if value is not None}
    if len(kinds) != 1 or kinds == {""}:
        raise _untyped(path, node)
    return kinds.pop()


def _widest(word: str, values: list[Any]) -> Any:
    if word == "enum":
        return list(dict.fromkeys(value for some in values for value in some))
    return min(values) if word.startswith("min") else max(values)


def _untyped(path: str, node: Any) -> DataError:
    return DataError(
        f"every value of a planner's schema must have a type other than null, {path} is {node!r}. "
        "Name one, or ask for a string that holds JSON"
    )

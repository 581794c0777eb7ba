"""Fresh inputs for hidden calls: a closed list of declarative generators, drawn by a seeded random stream.

A generator is JSON, so the data set carries no code that runs here:

| kind | keys | gives |
|---|---|---|
| `integer` | `low`, `high`, `edges` | an integer; edges are drawn now and then |
| `number` | `low`, `high`, `digits`, `edges` | a float with at most `digits` decimals |
| `boolean` | | True or False |
| `choice` | `values` | one of them |
| `text` | `alphabet`, `min`, `max` | characters of the alphabet |
| `words` | `values`, `min`, `max`, `separator` | words, joined |
| `template` | `pattern`, `parts` | `pattern.format(**parts)`, each part drawn |
| `list` | `item`, `min`, `max` | a list of drawn items |
| `object` | `fields` | a dict of drawn values |
| `one_of` | `of` | one of several generators |
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

from skyrl_nat.environments.nat_agent.payload import ToolSpec
from skyrl_nat.errors import DataError

Generator = Mapping[str, Any]
EDGE_SHARE = 0.15
"""How often a number is one of the edges."""
WORDS = ("a", "so", "the", "cat", "river", "blue", "seven", "open", "kite", "window", "stone", "echo", "lamp", "forest")


def draw(generator: Generator, rng: random.Random) -> Any:
    """Return one value.

    Raises:
        DataError: There is no such kind, or a key is missing.
    """
    try:
        return _KINDS[generator["kind"]](generator, rng)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise DataError(
            f"a generator must be one of {', '.join(_KINDS)} with its keys, got {dict(generator)!r}: "
            f"{type(error).__name__}: {error}. Fix the data set"
        ) from error


def draw_input(tool: ToolSpec, generators: Mapping[str, Any], rng: random.Random) -> Any:
    """Return one input of a tool: the only argument as it is, several as an object.

    Args:
        tool: Whose input is wanted.
        generators: Argument -> generator; what is missing is drawn from the argument's JSON schema.
        rng: Where randomness comes from.
    """
    schemas: dict[str, Any] = tool.inputs["properties"]
    values = {name: draw(generators.get(name) or from_schema(schema), rng) for name, schema in schemas.items()}
    return next(iter(values.values())) if len(values) == 1 else values


def from_schema(schema: Mapping[str, Any]) -> Generator:
    """Return the generator that a JSON schema suggests."""
    if "enum" in schema:
        return {"kind": "choice", "values": schema["enum"]}
    kind = schema["type"]
    if kind == "integer":
        return {"kind": kind, "low": schema.get("minimum", -999), "high": schema.get("maximum", 999), "edges": [0, 1]}
    if kind == "number":
        low, high = schema.get("minimum", -500.0), schema.get("maximum", 500.0)
        return {"kind": kind, "low": low, "high": high, "digits": 2, "edges": [0.0]}
    if kind == "string":
        return {"kind": "words", "values": list(WORDS), "min": 1, "max": 5, "separator": " "}
    if kind == "array":
        return {"kind": "list", "item": from_schema(schema["items"]), "min": 1, "max": 7}
    if kind == "object":
        return {"kind": kind, "fields": {name: from_schema(part) for name, part in schema["properties"].items()}}
    return {"kind": "boolean"}


def _number_with_edges(generator: Generator, rng: random.Random, drawn: Callable[[], Any]) -> Any:
    edges = [edge for edge in generator.get("edges", []) if generator["low"] <= edge <= generator["high"]]
    return rng.choice(edges) if edges and rng.random() < EDGE_SHARE else drawn()


def _integer(generator: Generator, rng: random.Random) -> int:
    return _number_with_edges(generator, rng, lambda: rng.randint(generator["low"], generator["high"]))


def _number(generator: Generator, rng: random.Random) -> float:
    def drawn() -> float:
        value = round(rng.uniform(generator["low"], generator["high"]), rng.randint(0, generator.get("digits", 2)))
        # Rounding may step over a bound, and gives -0.0, which is another text than 0.0.
        return min(max(value, generator["low"]), generator["high"]) + 0.0

    return float(_number_with_edges(generator, rng, drawn))


def _text(generator: Generator, rng: random.Random) -> str:
    return "".join(rng.choices(generator["alphabet"], k=rng.randint(generator["min"], generator["max"])))


def _words(generator: Generator, rng: random.Random) -> str:
    count = rng.randint(generator["min"], generator["max"])
    return generator.get("separator", " ").join(rng.choices(generator.get("values", WORDS), k=count))


def _template(generator: Generator, rng: random.Random) -> str:
    return generator["pattern"].format(**{name: draw(part, rng) for name, part in generator["parts"].items()})


def _list(generator: Generator, rng: random.Random) -> list[Any]:
    return [draw(generator["item"], rng) for _ in range(rng.randint(generator["min"], generator["max"]))]


def _object(generator: Generator, rng: random.Random) -> dict[str, Any]:
    return {name: draw(part, rng) for name, part in generator["fields"].items()}


_KINDS: dict[str, Callable[[Generator, random.Random], Any]] = {
    "integer": _integer,
    "number": _number,
    "boolean": lambda _, rng: rng.random() < 0.5,
    "choice": lambda generator, rng: rng.choice(generator["values"]),
    "text": _text,
    "words": _words,
    "template": _template,
    "list": _list,
    "object": _object,
    "one_of": lambda generator, rng: draw(rng.choice(generator["of"]), rng),
}

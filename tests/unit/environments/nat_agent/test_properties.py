"""Laws of references: each kind holds for functions that obey it and is broken by one that does not."""

import random
from typing import Any

import pytest
from mini_nat import open_oracle

from skyrl_nat.environments.nat_agent.payload import (
    AgentSpec,
    HiddenSpec,
    Reference,
    ToolSpec,
    WorkflowSpec,
    WorkflowType,
)
from skyrl_nat.environments.nat_agent.properties import KINDS, broken_laws

INTEGER, LIST, TEXT = {"type": "integer"}, {"type": "array", "items": {"type": "integer"}}, {"type": "string"}


def broken(law: dict[str, Any], schema: dict[str, Any], *bodies: str) -> list[str]:
    """What `broken_laws` says of functions f, g, ... of one argument x."""
    names = "fg"[: len(bodies)]
    inputs = {"type": "object", "properties": {"x": schema}}
    tools = tuple(ToolSpec(name=name, description="", inputs=inputs, output=schema) for name in names)
    spec = AgentSpec(
        name="n", package="agent", tools=tools, workflow=WorkflowSpec(type=WorkflowType.sequential_executor, uses=())
    )
    references = {
        name: Reference(source=f"async def run(x):\n    {body}\n") for name, body in zip(names, bodies, strict=True)
    }
    hidden = HiddenSpec(reference=references, generators={}, vectors=(), properties=({"tool": "f", **law},))
    return broken_laws(open_oracle(), spec, hidden, random.Random(3))


@pytest.mark.parametrize(
    ("law", "schema", "good", "bad"),
    [
        ({"kind": "idempotent"}, INTEGER, ["return abs(x)"], ["return x + 1"]),
        ({"kind": "idempotent"}, TEXT, ["return x.upper()"], ["return x + '!'"]),
        ({"kind": "involution"}, INTEGER, ["return -x"], ["return abs(x)"]),
        ({"kind": "involution"}, LIST, ["return x[::-1]"], ["return sorted(x)"]),
        (
            {"kind": "round_trip", "other": "g"},
            INTEGER,
            ["return x + 5", "return x - 5"],
            ["return x + 5", "return x - 4"],
        ),
        ({"kind": "even"}, INTEGER, ["return x * x"], ["return x * x * x"]),
        ({"kind": "odd"}, INTEGER, ["return x * 3"], ["return x * x"]),
        ({"kind": "monotone"}, INTEGER, ["return x // 3"], ["return x % 3"]),
        ({"kind": "bounds", "low": 0, "high": 9}, INTEGER, ["return x % 10"], ["return x % 11"]),
        ({"kind": "bounds", "low": 0}, INTEGER, ["return abs(x)"], ["return x"]),
        ({"kind": "permutation_invariant"}, LIST, ["return sum(x)"], ["return x[0]"]),
    ],
)
def test_every_law_holds_where_it_is_obeyed_and_breaks_where_not(
    law: dict[str, Any], schema: dict[str, Any], good: list[str], bad: list[str]
) -> None:
    assert broken(law, schema, *good) == []
    [sentence] = broken(law, schema, *bad)
    assert sentence.startswith(f"f must be {law['kind']}, but is not for one of [")


def test_all_kinds_are_tried_above() -> None:
    [mark] = test_every_law_holds_where_it_is_obeyed_and_breaks_where_not.pytestmark  # pyright: ignore
    assert {row[0]["kind"] for row in mark.args[1]} == set(KINDS)


def test_refused_inputs_say_nothing_about_a_law() -> None:
    only_even = "if x % 2:\n        raise ValueError('odd')\n    return x * x"
    assert broken({"kind": "even"}, INTEGER, only_even) == []


def test_unknown_law_is_refused() -> None:
    with pytest.raises(KeyError, match="lucky"):
        broken({"kind": "lucky"}, INTEGER, "return x")

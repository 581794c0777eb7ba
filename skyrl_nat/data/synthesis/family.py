"""What a family of tools is: templates on one subject, each of which gives many variants of a tool."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

TYPES = ("int", "float", "str", "bool", "list[int]", "list[float]", "list[str]")
"""Types of arguments and answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a tool's configuration class, read as `config.<name>` in its body."""

    type: str
    """`int`, `float`, `str` or `bool`."""
    default: Any
    set: Any
    """What the workflow file sets it to; differs from the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolVariant:
    """One concrete tool, before examples and hidden inputs are drawn."""

    name: str
    """Identifier, unique in the library for this behaviour: `round_to_3_digits`, not `round_number`."""
    args: dict[str, str]
    """Argument -> one of `TYPES`."""
    returns: str
    """One of `TYPES`."""
    does: Sequence[str]
    """At least three ways to say what it returns; each alone, with `behaviour`, defines the tool wholly."""
    body: str
    """Python statements of `async def run(<args>)`, standard library only, imports inside; pure and deterministic."""
    draw: dict[str, dict[str, Any]]
    """Argument -> generator (`environments.nat_agent.generators`)."""
    behaviour: Sequence[str] = ()
    """Rules that `does` leaves out, one sentence each: rounding, ties, empty input."""
    edges: Sequence[Any] = ()
    """Inputs that are tried beside those drawn: the value itself for one argument, else an object."""
    raises: str = ""
    """When ValueError is raised, as a sentence part: `x is negative`."""
    errors: Sequence[Any] = ()
    """Inputs for which it is raised; at least two where `raises` is given."""
    options: dict[str, Option] = field(default_factory=dict[str, Option])
    laws: Sequence[dict[str, Any]] = ()
    """Laws that the outputs obey (`environments.nat_agent.properties`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTemplate:
    """A tool in many variants."""

    level: int
    """How hard one tool is to get right, 1 (one expression) to 3 (an algorithm with cases)."""
    make: Callable[[random.Random], ToolVariant]
    """Draws a variant; the same random stream gives the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Templates on one subject."""

    name: str
    """Name of its module."""
    subject: str
    """What its tools are about, two to five words: `changing the case of text`."""
    tools: Sequence[ToolTemplate]

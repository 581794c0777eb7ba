"""Agents composed of the library's tools: what is asked for at each of five levels of difficulty.

| difficulty | asks for |
|---|---|
| 1, 2 | one tool of level 1, 2 |
| 3 | one tool of level 3; two tools in a sequence; a workflow function that uses two tools |
| 4 | a ReAct or tool-calling agent, or a longer sequence, with tests and an MCP server |
| 5 | a router of desks, or a workflow function over three tools, with tests and an MCP server |
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from skyrl_nat.data.synthesis.family import Family, ToolVariant
from skyrl_nat.data.synthesis.library import templates_of

SCALARS = ("int", "float", "str")
MAX_TRIES = 400
"""Draws of tools until they fit together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What one task is made of, before any input is drawn."""

    name: str
    difficulty: int
    families: tuple[str, ...]
    tools: tuple[ToolVariant, ...]
    description: str = ""
    workflow_type: str = ""
    """Empty where the last function is the workflow."""
    workflow: ToolVariant | None = None
    num_tests: int = 0
    mcp: tuple[str, ...] = ()
    seed: str = ""
    """Of the inputs that are drawn and of the wording."""

    @property
    def key(self) -> str:
        """What makes two recipes the same task."""
        names = "+".join(sorted(tool.name for tool in self.tools))
        return f"{self.workflow_type or (self.workflow.name if self.workflow else 'single')}/{names}"


Drawn = list[tuple[Family, ToolVariant]]


def draw_recipe(families: Sequence[Family], difficulty: int, seed: str) -> Recipe | None:
    """Return a recipe of a difficulty, or None where the families have no tools for what was drawn.

    Args:
        families: Where tools may come from.
        difficulty: 1 to 5.
        seed: The same seed gives the same recipe.
    """
    rng = random.Random(seed)
    make = rng.choice(_KINDS[difficulty])
    recipe = make(families, rng)
    return None if recipe is None else replace(recipe, difficulty=difficulty, seed=seed)


def _single(level: int) -> Callable[[Sequence[Family], random.Random], Recipe | None]:
    def make(families: Sequence[Family], rng: random.Random) -> Recipe | None:
        found = templates_of(families, level)
        if not found:
            return None
        family, template = rng.choice(found)
        tool = template.make(rng)
        return _recipe(tool.name, [(family, tool)])

    return make


def _sequence(length: int, *, is_whole: bool) -> Callable[[Sequence[Family], random.Random], Recipe | None]:
    """Tools of which each takes what the one before gives."""

    def make(families: Sequence[Family], rng: random.Random) -> Recipe | None:
        chain: Drawn = []
        for _ in range(MAX_TRIES):
            family, tool = _draw_tool(families, rng)
            takes = list(tool.args.values())
            fits = takes == [chain[-1][1].returns] if chain else takes == ["str"] and not tool.raises
            is_last = len(chain) == length - 1
            if fits and (tool.returns == "str" or (is_last and tool.returns in SCALARS)) and _is_new(tool, chain):
                chain.append((family, tool))
            if len(chain) == length:
                steps = ", then ".join(tool.name for _, tool in chain)
                recipe = _recipe(f"{chain[0][1].name}_then_{chain[-1][1].name}", chain, f"Runs {steps}.")
                recipe = replace(recipe, workflow_type="sequential_executor")
                return _whole(recipe, rng) if is_whole else recipe
        return None

    return make


def _agent(kind: str) -> Callable[[Sequence[Family], random.Random], Recipe | None]:
    """An agent whose LLM chooses tools."""

    def make(families: Sequence[Family], rng: random.Random) -> Recipe | None:
        tools = _draw_tools(families, rng, rng.choice([2, 2, 3]), lambda tool: tool.returns in SCALARS)
        if tools is None:
            return None
        subjects = " and ".join(dict.fromkeys(family.subject for family, _ in tools))
        recipe = _recipe(f"{tools[0][0].name}_{kind}_{tools[1][1].name}", tools, f"Answers questions about {subjects}.")
        return _whole(replace(recipe, workflow_type=kind), rng)

    return make


def _router(families: Sequence[Family], rng: random.Random) -> Recipe | None:
    """Desks that take a text each."""
    tools = _draw_tools(
        families, rng, rng.choice([2, 3]), lambda t: list(t.args.values()) == ["str"] and t.returns == "str"
    )
    if tools is None:
        return None
    subjects = " or ".join(dict.fromkeys(family.subject for family, _ in tools))
    recipe = _recipe(f"router_of_{tools[0][1].name}", tools, f"Routes a request to the tool for {subjects}.")
    return _whole(replace(recipe, workflow_type="router_agent"), rng)


def _report(count: int, *, is_whole: bool) -> Callable[[Sequence[Family], random.Random], Recipe | None]:
    """A workflow function that asks several tools about the same value and lists what they say."""

    def make(families: Sequence[Family], rng: random.Random) -> Recipe | None:
        kind = rng.choice(["str", "str", "int", "float"])
        tools = _draw_tools(
            families, rng, count, lambda t: list(t.args.values()) == [kind] and t.returns in SCALARS and not t.raises
        )
        if tools is None:
            return None
        separator = rng.choice(["; ", " | ", ", ", " / "])
        names = [tool.name for _, tool in tools]
        asked = "".join(f"answer_{i} = await {name}.ainvoke(value)\n" for i, name in enumerate(names))
        parts = separator.join(f"{{answer_{i}}}" for i in range(count))
        first = tools[0][1]
        workflow = ToolVariant(
            name=f"report_{names[0]}"[:40],
            args={"value": kind},
            returns="str",
            does=(
                f"Ask {', '.join(names)} about value and return their answers in this order, joined by {separator!r}.",
                f"Return what {', '.join(names)} answer to value, in this order, with {separator!r} between them.",
                f"Give value to {', '.join(names)}; the answers, in this order and joined by {separator!r}, are the "
                "result.",
            ),
            behaviour=["Each answer is written as Python's str() writes it."],
            body=f'{asked}return f"{parts}"',
            draw={"value": next(iter(first.draw.values()))},
        )
        recipe = _recipe(f"{names[0]}_report", tools, "Reports on a value.", workflow)
        return _whole(recipe, rng) if is_whole else recipe

    return make


def _steps(families: Sequence[Family], rng: random.Random) -> Recipe | None:
    """A workflow function that feeds one tool's answer to another and shows both."""
    for _ in range(MAX_TRIES):
        first, second = _draw_tool(families, rng), _draw_tool(families, rng)
        gives = first[1].returns
        if list(second[1].args.values()) != [gives] or gives not in SCALARS or len(first[1].args) != 1:
            continue
        if first[1].raises or second[1].raises or second[1].returns not in SCALARS:
            continue
        if not _is_new(second[1], [first]):
            continue
        one, two = first[1].name, second[1].name
        arrow = rng.choice([" -> ", " => ", " gives "])
        workflow = ToolVariant(
            name=f"steps_{one}"[:40],
            args={"value": next(iter(first[1].args.values()))},
            returns="str",
            does=(
                f'Return "<a>{arrow}<b>" where <a> is what {one} answers to value and <b> what {two} answers to <a>.',
                f'Call {one} with value and {two} with its answer; return both as "<first>{arrow}<second>".',
                f'Give value to {one}, its answer to {two}, and write "<answer of {one}>{arrow}<answer of {two}>".',
            ),
            behaviour=["Each answer is written as Python's str() writes it."],
            body=f"first = await {one}.ainvoke(value)\nsecond = await {two}.ainvoke(first)\n"
            f'return f"{{first}}{arrow}{{second}}"',
            draw={"value": next(iter(first[1].draw.values()))},
        )
        return _recipe(f"{one}_and_{two}", [first, second], "Two steps, one after the other.", workflow)
    return None


def _over_list(*, is_whole: bool) -> Callable[[Sequence[Family], random.Random], Recipe | None]:
    """A workflow function that applies a tool to every item of a list."""

    def make(families: Sequence[Family], rng: random.Random) -> Recipe | None:
        kind = rng.choice(["str", "int", "float"])
        tools = _draw_tools(
            families, rng, 2, lambda t: list(t.args.values()) == [kind] and t.returns in ("int", "float")
        )
        if tools is None:
            return None
        (_, one), (_, two) = tools
        word, code = rng.choice([("largest", "max"), ("smallest", "min")])
        workflow = ToolVariant(
            name=f"{word}_{one.name}"[:40],
            args={"items": f"list[{kind}]"},
            returns="str",
            does=(
                f'Return "<a>, <b>" where <a> is the {word} answer of {one.name} over items and <b> the {word} answer '
                f"of {two.name}.",
                f'Ask {one.name} and {two.name} about every item; return the {word} answer of each as "<a>, <b>".',
                f'Over all items, find the {word} answer of {one.name} and that of {two.name}: "<first>, <second>".',
            ),
            behaviour=["Each answer is written as Python's str() writes it."],
            raises="items is empty, or a tool refuses an item" if one.raises or two.raises else "items is empty",
            errors=[[], []],
            body=(
                "if not items:\n    raise ValueError('no items')\n"
                f"first = {code}([await {one.name}.ainvoke(item) for item in items])\n"
                f"second = {code}([await {two.name}.ainvoke(item) for item in items])\n"
                'return f"{first}, {second}"'
            ),
            draw={"items": {"kind": "list", "item": next(iter(one.draw.values())), "min": 1, "max": 4}},
        )
        recipe = _recipe(f"{word}_of_{one.name}", tools, "Looks at every item of a list.", workflow)
        return _whole(recipe, rng) if is_whole else recipe

    return make


_KINDS: dict[int, list[Callable[[Sequence[Family], random.Random], Recipe | None]]] = {
    1: [_single(1)],
    2: [_single(2)],
    3: [_single(3), _single(3), _sequence(2, is_whole=False), _report(2, is_whole=False), _steps],
    4: [_agent("react_agent"), _agent("tool_calling_agent"), _sequence(3, is_whole=True)],
    5: [_router, _report(3, is_whole=True), _over_list(is_whole=True)],
}


def _draw_tool(families: Sequence[Family], rng: random.Random) -> tuple[Family, ToolVariant]:
    family = rng.choice(families)
    return family, rng.choice(family.tools).make(rng)


def _draw_tools(
    families: Sequence[Family], rng: random.Random, count: int, fits: Callable[[ToolVariant], bool]
) -> Drawn | None:
    """Return different tools, the second and further ones of any family."""
    found: Drawn = []
    for _ in range(MAX_TRIES):
        family, tool = _draw_tool(families, rng)
        if fits(tool) and _is_new(tool, found):
            found.append((family, tool))
        if len(found) == count:
            return found
    return None


def _is_new(tool: ToolVariant, found: Drawn) -> bool:
    return tool.name not in {other.name for _, other in found}


def _recipe(name: str, tools: Drawn, description: str = "", workflow: ToolVariant | None = None) -> Recipe:
    return Recipe(
        name=name[:64],
        difficulty=1,
        families=tuple(dict.fromkeys(family.name for family, _ in tools)),
        tools=tuple(tool for _, tool in tools),
        description=description,
        workflow=workflow,
    )


def _whole(recipe: Recipe, rng: random.Random) -> Recipe:
    """Ask for a test of every function, a project file and, mostly, an MCP server too."""
    names = [tool.name for tool in recipe.tools]
    served = tuple(rng.sample(names, rng.randint(1, len(names)))) if rng.random() < 0.8 else ()
    return replace(recipe, num_tests=len(names) + (recipe.workflow is not None), mcp=served)

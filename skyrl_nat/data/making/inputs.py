"""Examples and hidden inputs of a task's functions, chosen among candidates so that they notice mistakes."""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from skyrl_nat.data.making.asker import Asker
from skyrl_nat.data.making.build import MIN_NOTICED, Source, mutants_of
from skyrl_nat.environments.nat_agent.generators import draw
from skyrl_nat.errors import DataError

NUM_DRAWN = 40
NUM_EXAMPLES = 3
NUM_INPUTS = 10
NUM_RUNS = 4
MAX_ERRORS = 5
MAX_SAME = 0.5
"""Share of drawn inputs that may have one answer; more would pay a constant."""


def choose_inputs(
    ask: Asker, tools: Sequence[Source], drawn: Mapping[str, Sequence[Any]], refused: Mapping[str, Sequence[Any]]
) -> None:
    """Fill in `examples`, `inputs` and `errors` of every function.

    Args:
        ask: Knows what the references say.
        tools: Sources of the functions.
        drawn: Function -> candidates for inputs.
        refused: Function -> inputs that must be refused.

    Raises:
        DataError: A function raises what is not documented, gives one answer to most inputs, or no choice of inputs
            notices enough mistakes.
    """
    ask.fetch(((name,), value) for found in (drawn, refused) for name, values in found.items() for value in values)
    changed = [(tool["name"], text) for tool in tools for text in mutants_of(ask.hidden, tool["name"])]
    candidates = {tool["name"]: _sort_out(ask, tool, drawn[tool["name"]], refused[tool["name"]]) for tool in tools}
    inputs = {tool["name"]: [*candidates[tool["name"]], *tool["errors"]] for tool in tools}
    table = ask.differing(changed, inputs)
    for tool in tools:
        rows = [row for (name, _), row in zip(changed, table, strict=True) if name == tool["name"]]
        _choose(tool, candidates[tool["name"]], rows)


def _sort_out(ask: Asker, tool: Source, drawn: Sequence[Any], refused: Sequence[Any]) -> list[Any]:
    """Return the candidates that give an answer; the others become `errors`."""
    name = tool["name"]
    said = {json.dumps(value): ask.answer(name, value) for value in [*drawn, *refused]}
    kinds = {answer.raises for answer in said.values()} - {""}
    if kinds - {"ValueError"} or (kinds and "raises" not in tool):
        raise DataError(f"{name} must raise ValueError, and only where that is documented, got {sorted(kinds)}")
    if taken := [value for value in refused if not said[json.dumps(value)].raises]:
        raise DataError(f"{name} must refuse {taken[0]!r}, and answers {said[json.dumps(taken[0])].output!r}")
    gives = [value for value in drawn if not said[json.dumps(value)].raises]
    check_variety(name, tool["returns"], [said[json.dumps(value)].output for value in gives])
    tool["errors"] = distinct([value for value in [*refused, *drawn] if said[json.dumps(value)].raises])[:MAX_ERRORS]
    return gives


def _choose(tool: Source, values: list[Any], rows: list[list[bool]]) -> None:
    """Take hidden inputs greedily, each the one that notices most mistakes that none before has; then examples."""
    is_open = [not any(row[len(values) :]) for row in rows]  # those that a refused input notices are closed
    chosen: list[int] = []
    left = list(range(len(values)))
    while left and len(chosen) < NUM_INPUTS:
        best = max(left, key=lambda i: (sum(row[i] for row, wanted in zip(rows, is_open, strict=True) if wanted), -i))
        chosen.append(best)
        left.remove(best)
        is_open = [wanted and not row[best] for row, wanted in zip(rows, is_open, strict=True)]
    if len(left) < NUM_EXAMPLES or len(chosen) < NUM_INPUTS:
        raise DataError(f"{tool['name']} must have {NUM_INPUTS + NUM_EXAMPLES} different inputs, got {len(values)}")
    if len(rows) - sum(is_open) < MIN_NOTICED * len(rows):
        raise DataError(f"inputs of {tool['name']} leave {sum(is_open)} of {len(rows)} mistakes unnoticed")
    tool["inputs"] = [values[i] for i in sorted(chosen)]
    tool["examples"] = [values[i] for i in left[-NUM_EXAMPLES:]]


def check_variety(name: str, returns: str, outputs: list[Any]) -> None:
    """Raise DataError where one answer is right for too many inputs."""
    most = Counter(json.dumps(output) for output in outputs).most_common(1)
    limit = 0.75 if returns == "bool" else MAX_SAME
    if not outputs or most[0][1] > limit * len(outputs):
        raise DataError(f"{name} must give different answers, got {most} among {len(outputs)}")


def draw_inputs(tool: Source, rng: random.Random) -> list[Any]:
    """Return inputs of a function, drawn by its generators."""
    found: list[Any] = []
    for _ in range(NUM_DRAWN):
        values = {name: draw(tool["draw"][name], rng) for name in tool["args"]}
        found.append(next(iter(values.values())) if len(values) == 1 else values)
    return found


def distinct(values: Sequence[Any]) -> list[Any]:
    """Return JSON values without repetitions, in order."""
    return list({json.dumps(value): value for value in values}.values())

"""Answers of a task that are known to be right or wrong: by them a data set is proved, and a judge tried."""

import textwrap

from skyrl_nat.environments.family import KnownAnswers
from skyrl_nat.environments.nat_agent.payload import AgentSpec, HiddenSpec, parse_hidden, parse_spec
from skyrl_nat.environments.nat_agent.solution import render_solution
from skyrl_nat.types import Task


def known_answers(task: Task) -> KnownAnswers:
    """Return the solution of a task, and answers that are broken in different ways.

    Raises:
        DataError: One half of the task is not whole.
    """
    spec, hidden = parse_spec(task.payload), parse_hidden(task.hidden)
    wrong = {"no files": {}, **wrong_answers(task), **_one_mistake(spec, hidden)}
    return KnownAnswers(
        right={"the solution": {"files": dict(hidden.solution)}},
        wrong={name: {"files": files} for name, files in wrong.items()},
    )


def wrong_answers(task: Task) -> dict[str, dict[str, str]]:
    """Return broken answers of a task whose form is perfect, by what is wrong with them."""
    spec, hidden = parse_spec(task.payload), parse_hidden(task.hidden)
    first = {vector.tool: vector for vector in reversed(hidden.vectors)}
    names = [tool.name for tool in spec.functions]
    constants = {name: f"return {first[name].output!r}" for name in names}
    nothing = dict.fromkeys(names, "return None")
    return {
        "a constant for every input": render_solution(spec, constants, hidden.vectors, hidden.errors),
        "no input is read": render_solution(spec, nothing, hidden.vectors, hidden.errors),
    }


def _one_mistake(spec: AgentSpec, hidden: HiddenSpec) -> dict[str, dict[str, str]]:
    """Return the solution with one mistake that the recorded inputs notice, where the task keeps such."""
    bodies = {name: _body(reference.source) for name, reference in hidden.reference.items()}
    for mutant in hidden.mutants[:1]:
        changed = {**bodies, mutant.tool: _body(mutant.source)}
        files = render_solution(spec, changed, hidden.vectors, hidden.errors)
        return {f"one mistake in {mutant.tool}": files}
    return {}


def _body(source: str) -> str:
    """Return what stands below the first line of a function."""
    return textwrap.dedent(source.partition("\n")[2])

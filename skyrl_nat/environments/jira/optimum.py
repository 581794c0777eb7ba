"""The best return that any policy can have on an issue, by exact search."""

from dataclasses import dataclass

from skyrl_nat.environments.jira.catalogue import Issue
from skyrl_nat.environments.jira.machine import Machine, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The end of the search."""

    value: float
    """Undiscounted sum of rewards."""
    tools: tuple[str, ...]
    """Tools of one episode that has it; the first in the order of the actions where several have."""


def optimal_return(issue: Issue, max_steps: int | None = None) -> float:
    """Return the highest sum of rewards within the step limit; see `find_optimum`."""
    return find_optimum(issue, max_steps).value


def find_optimum(issue: Issue, max_steps: int | None = None) -> Optimum:
    """Search all episodes of an issue.

    What a state can still earn depends on its status, its facts, its progress and whether exactly the plan was done so
    far: once it was not, the verdict is lost. Episodes that agree in these are searched once. The plan itself is not
    assumed to be best.

    Args:
        issue: Where the episode starts.
        max_steps: Step limit; None is the workflow's.
    """
    machine = Machine(issue)
    known: dict[tuple[object, ...], Optimum] = {}

    def search(state: State, steps_left: int) -> Optimum:
        if state.is_ended or not steps_left:
            return Optimum(value=0.0, tools=())
        is_clean = state.executed == machine.plan[: state.num_progress]
        key = (state.status, state.facts, state.num_progress, is_clean, steps_left)
        if key not in known:
            best = Optimum(value=float("-inf"), tools=())
            for name in machine.workflow.tool_names:
                transition = machine.apply(state, name)
                rest = search(transition.state, steps_left - 1)
                if transition.reward + rest.value > best.value:
                    best = Optimum(value=transition.reward + rest.value, tools=(name, *rest.tools))
            known[key] = best
        return known[key]

    return search(machine.start(), machine.workflow.max_steps if max_steps is None else max_steps)

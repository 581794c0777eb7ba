"""What the policy reads: one short message first, and what is open after every turn."""

from skyrl_nat.environments.task_dag.graph import PlanGraph
from skyrl_nat.environments.task_dag.ids import ROOT
from skyrl_nat.environments.task_dag.payload import Request
from skyrl_nat.environments.task_dag.protocol import MAX_DESCRIPTION_CHARS, MAX_SUBTASKS, MIN_SUBTASKS
from skyrl_nat.environments.task_dag.task_types import GROUP, TYPES
from skyrl_nat.types import Message

_SYSTEM = f"""You plan work. Each turn you answer with one JSON object and nothing else. Either split "{ROOT}" or a \
group into {MIN_SUBTASKS} to {MAX_SUBTASKS} subtasks, or stop when the plan is complete.
Example for the needs "clean the old tent" and "pack the warm food", where the food waits for the tent:
{{"action": "decompose", "node": "{ROOT}", "subtasks": [\
{{"id": "tent", "type": "make", "description": "Clean the old tent", "depends_on": []}}, \
{{"id": "food", "type": "deliver", "description": "Pack the warm food", "depends_on": ["tent"]}}]}}
Then: {{"action": "stop"}}
"""
MAX_GROUPS_NAMED = 10
LAST_TURN_NOTE = ' This is your last turn: answer {"action": "stop"} if the plan is complete.'


def build_prompt(request: Request, max_turns: int) -> list[Message]:
    """Return the first messages.

    Args:
        request: The visible half of the task.
        max_turns: Answers at most, the stop included.
    """
    kinds = ", ".join(f"{name} {kind.hours:g} h" for name, kind in TYPES.items() if name != GROUP)
    lines = [
        f"Request: {request.title}",
        "Needs, one task for each, named by its words:",
        *(f"- {need}" for need in request.needs),
        *(["Order:", *(f"- {rule}" for rule in request.rules)] if request.rules else []),
        f"Types: {kinds}, {GROUP} (must be split later).",
        f"Limits: {request.min_tasks} to {request.max_tasks} tasks without groups, {request.max_depth} levels, "
        f"{max_turns} turns, descriptions up to {MAX_DESCRIPTION_CHARS} characters.",
        f"{request.num_workers} people work at once, nothing starts after {request.deadline_h:g} h. depends_on names "
        "earlier ids or siblings, only where the order asks for it.",
    ]
    return [Message(role="system", content=_SYSTEM), Message(role="user", content="\n".join(lines))]


def observation(graph: PlanGraph, turns_left: int) -> str:
    """Return what the policy reads after a turn that was taken.

    Args:
        graph: The plan so far; its ids are safe to show.
        turns_left: Answers that may still come; >= 1.
    """
    groups = [graph.node(leaf).id for leaf in graph.leaves if graph.node(leaf).type == GROUP]
    tasks = len(graph.leaves) - len(groups)
    named = ", ".join(groups[:MAX_GROUPS_NAMED]) or "none"
    rest = f" and {len(groups) - MAX_GROUPS_NAMED} more" if len(groups) > MAX_GROUPS_NAMED else ""
    text = f"{tasks} tasks. Groups to split: {named}{rest}. Turns left: {turns_left}."
    return text + LAST_TURN_NOTE if turns_left == 1 else text

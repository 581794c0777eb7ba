"""The plan of a simple rule, without any model: one task for each need, in the order in which they stand."""

from skyrl_nat.environments.task_dag.graph import Node
from skyrl_nat.environments.task_dag.ids import ROOT
from skyrl_nat.environments.task_dag.payload import Request
from skyrl_nat.environments.task_dag.protocol import MAX_SUBTASKS
from skyrl_nat.environments.task_dag.task_types import GROUP

VERBS = {
    "research": ("look", "find", "compare", "interview", "ask", "study"),
    "design": ("draft", "sketch", "outline", "plan", "design"),
    "test": ("test", "check", "measure", "rehearse", "try"),
    "review": ("review", "approve", "proofread", "inspect"),
    "deliver": ("publish", "announce", "send", "hand", "launch", "present", "switch"),
}
"""Type -> first words of a need; everything else is `make`."""


def plan_by_rules(request: Request) -> list[Node]:
    """Return a plan for a request: types by the first word, each task after the one before it.

    More tasks than one node may have are put into groups; the plan is safe and slow.
    """
    needs = request.needs
    size = len(needs) if len(needs) <= MAX_SUBTASKS else -(-len(needs) // MAX_SUBTASKS)
    nodes: list[Node] = []
    previous: tuple[str, ...] = ()
    for number, need in enumerate(needs):
        parent = ROOT
        if len(needs) > MAX_SUBTASKS:
            parent = f"part-{number // size + 1}"
            if number % size == 0:
                nodes.append(Node(id=parent, type=GROUP, description=f"Part {number // size + 1}, from {need}"))
        name = f"task-{number + 1}"
        nodes.append(Node(id=name, type=_type_of(need), description=need, depends_on=previous, parent=parent))
        previous = (name,)
    return nodes


def _type_of(need: str) -> str:
    first = need.split()[0].lower()
    return next((kind for kind, verbs in VERBS.items() if first in verbs), "make")

"""Episodes of an issue that are known to be right or wrong: by them the judge is tried."""

from skyrl_nat.environments.family import KnownAnswers
from skyrl_nat.environments.jira.catalogue import read_issue
from skyrl_nat.environments.jira.machine import Machine
from skyrl_nat.environments.jira.optimum import find_optimum
from skyrl_nat.types import Task


def known_answers(task: Task) -> KnownAnswers:
    """Return the plan of an issue and the best episode that a search finds, and plans that were cut or stretched.

    Raises:
        DataError: The payload holds no issue of a shipped workflow.
    """
    issue = read_issue(task.payload["issue"])
    plan = Machine(issue).plan
    wrong: dict[str, tuple[str, ...]] = {
        "no call": (),
        "the plan without its last step": plan[:-1],
        "the plan without its first step": plan[1:],
        "each step twice": tuple(name for name in plan for _ in range(2)),
    }
    return KnownAnswers(
        right={"the plan": {"calls": list(plan)}, "the best episode": {"calls": list(find_optimum(issue).tools)}},
        wrong={name: {"calls": list(calls)} for name, calls in wrong.items()},
    )

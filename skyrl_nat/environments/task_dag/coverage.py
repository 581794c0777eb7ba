"""Which tasks of a plan meet which requirement, and whether they come in the order that was asked for.

A task meets a requirement whose keywords all begin words of its description. One that names several requirements
meets none: it has decomposed nothing. So a description with all the request's words in it is worth nothing.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skyrl_nat.environments.task_dag.graph import PlanGraph
from skyrl_nat.environments.task_dag.payload import HiddenPlan, Requirement

NAMED_ONLY = 0.5
"""What a requirement counts whose tasks are all of another type."""
_WORD = re.compile(r"[^\W_]+")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; signs only part them."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def requirement_of(text: str, requirements: Sequence[Requirement]) -> int | None:
    """Return the place of the one requirement that a description names; None where it names none or several."""
    words = words_of(text)
    named = [
        place
        for place, requirement in enumerate(requirements)
        if all(any(word.startswith(keyword) for word in words) for keyword in requirement.keywords)
    ]
    return named[0] if len(named) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What a plan does for its request."""

    met: tuple[tuple[int, ...], ...]
    """For each requirement the tasks that meet it, by number."""
    named: tuple[bool, ...]
    """For each requirement whether a task names it, of the right type or not."""
    too_early: frozenset[int]
    """Tasks that start before something that they must wait for."""
    kept: tuple[bool, ...]
    """For each pair of the order whether both are met and come one after the other."""

    @property
    def share(self) -> float:
        """Share of the requirements, in [0, 1]; those that are only named count half."""
        values = [1.0 if tasks else NAMED_ONLY * named for tasks, named in zip(self.met, self.named, strict=True)]
        return sum(values) / len(values)

    @property
    def order_share(self) -> float:
        """Share of the pairs that are kept; 1 where there are none."""
        return sum(self.kept) / len(self.kept) if self.kept else 1.0


def cover(graph: PlanGraph, hidden: HiddenPlan) -> Coverage:
    """Return what the tasks of a plan do for the requirements.

    Where several tasks meet one requirement, all of them must be done before any of those that wait for it.
    """
    met: list[list[int]] = [[] for _ in hidden.requirements]
    named = [False] * len(met)
    for leaf in graph.leaves:
        node = graph.node(leaf)
        place = requirement_of(node.description, hidden.requirements)
        if place is not None:
            named[place] = True
            if node.type == hidden.requirements[place].type:
                met[place].append(leaf)
    wanted = {leaf for first, _ in hidden.order for leaf in met[first]}
    after = {leaf: graph.after(leaf) for leaf in wanted}
    early: set[int] = set()
    kept: list[bool] = []
    for first, second in hidden.order:
        late_enough = [bool(met[first]) and all(leaf in after[other] for other in met[first]) for leaf in met[second]]
        early |= _chosen(met[second], late_enough)
        kept.append(bool(late_enough) and all(late_enough))
    return Coverage(met=tuple(map(tuple, met)), named=tuple(named), too_early=frozenset(early), kept=tuple(kept))


def _chosen(tasks: Sequence[int], is_fine: Iterable[bool]) -> set[int]:
    return {task for task, fine in zip(tasks, is_fine, strict=True) if not fine}

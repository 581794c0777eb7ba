"""From a plan without faults to reward parts. Pure: the same plan and seed give the same numbers.

What a plan is measured against is the reference of its task, which earns 1 in every part. Gates: how a plan looks pays
no more than what it does. Parallelism, shape, cost and diversity are multiplied by the share of requirements that are
covered in the order asked for; success counts requirements that were really done.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from skyrl_nat.environments.task_dag.coverage import Coverage, cover, words_of
from skyrl_nat.environments.task_dag.graph import Node, PlanGraph
from skyrl_nat.environments.task_dag.payload import Decomposition, HiddenPlan, Request
from skyrl_nat.environments.task_dag.protocol import answer_text
from skyrl_nat.environments.task_dag.simulation import State, simulate
from skyrl_nat.environments.task_dag.task_types import CALM

WEIGHTS: dict[str, float] = {
    "success": 0.30,
    "coverage": 0.25,
    "order": 0.15,
    "parallelism": 0.10,
    "shape": 0.05,
    "cost": 0.05,
    "diversity": 0.10,
    "shaping_answers": 0.0,
}
"""Weight of each part. `shaping_answers` pays for form alone: for models too small to get a first reward otherwise."""
VISIBLE_PARTS = ("shaping_answers",)
"""Parts that pay without a hidden requirement met."""
REQUIRED = ("success", "coverage", "order", "shape")
"""Parts that are 1 where every requirement holds; the others say how well that was done."""
NUM_EXECUTIONS = 16
"""Times that a plan is carried out."""
AS_GOOD = 0.95
"""Share of the reference's success, and of the time it saves, from which on a plan is as good."""
ALIKE = 0.7
"""Share of common words from which on two descriptions say the same."""
CHARS_PER_TOKEN = 2
"""Characters of the reference's answers for which a token may be spent."""
MIN_WORDS = 2
"""Of a description that says anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What making a plan took."""

    num_turns: int
    """Answers, the stop included."""
    num_tokens: int | None = None
    """Sampled tokens; None where nobody counted them."""


def empty_parts(shaping_answers: float = 0.0) -> dict[str, float]:
    """Return every part at 0, but for what form may pay."""
    return dict.fromkeys(WEIGHTS, 0.0) | {"shaping_answers": shaping_answers}


def compute_parts(
    request: Request, hidden: HiddenPlan, graph: PlanGraph, effort: Effort, *, seed: int, findings: list[str]
) -> dict[str, float]:
    """Return the value of every part.

    Args:
        request: The visible half.
        hidden: The hidden half.
        graph: The plan; it has tasks.
        effort: Of the policy.
        seed: Of the executions.
        findings: Grows.
    """
    reference = PlanGraph(hidden.reference_nodes)
    coverage = cover(graph, hidden)
    gate = coverage.share * coverage.order_share
    findings += _coverage_findings(request, hidden, coverage)
    values = {
        "parallelism": parallelism(request, graph, reference),
        "shape": shape(request, graph),
        "cost": cost(effort, hidden.reference),
        "diversity": diversity(graph.nodes),
    }
    findings += [f"{name} is {value:.2f} of 1" for name, value in values.items() if value < 1.0]
    return {
        "success": _success(request, hidden, (graph, coverage), reference, seed),
        "coverage": coverage.share,
        "order": coverage.order_share,
        **{name: gate * value for name, value in values.items()},
        "shaping_answers": 1.0,
    }


def parallelism(request: Request, graph: PlanGraph, reference: PlanGraph) -> float:
    """Return how much of the time is saved that the reference saves by working at several tasks at once.

    Time is that of an execution in which all goes as planned. Doing all tasks of the reference one after the other
    gives 0, more than 0.95 of what the reference saves gives 1. Further tasks never help: they only take time.
    """
    serial = sum(CALM[reference.node(leaf).type].hours for leaf in reference.leaves)
    best = simulate(reference, num_workers=request.num_workers, types=CALM).hours
    found = simulate(graph, num_workers=request.num_workers, types=CALM).hours
    if serial <= best:
        return 1.0 if found <= best else 0.0
    return min(1.0, max(0.0, (serial - found) / (serial - best)) / AS_GOOD)


def shape(request: Request, graph: PlanGraph) -> float:
    """Return 1 where number of tasks and depth are in the range asked for, less the farther they are from it."""
    num_tasks, depth = len(graph.leaves), graph.depth()
    size = min(1.0, num_tasks / request.min_tasks, request.max_tasks / max(1, num_tasks))
    return size * min(1.0, request.max_depth / max(1, depth))


def cost(effort: Effort, reference: Sequence[Decomposition]) -> float:
    """Return 1 where no more turns and tokens were spent than needed, less in proportion to what was."""
    value = min(1.0, (len(reference) + 1) / max(1, effort.num_turns))
    if effort.num_tokens:
        value *= min(1.0, token_budget(reference) / effort.num_tokens)
    return value


def token_budget(reference: Sequence[Decomposition]) -> float:
    """Return how many tokens a plan may take: there is no tokenizer here, so that the reference's letters decide."""
    return sum(len(answer_text(turn)) for turn in (*reference, None)) / CHARS_PER_TOKEN


def diversity(nodes: Sequence[Node]) -> float:
    """Return the share of tasks whose description says something that no earlier one says.

    Quadratic in the number of tasks, which `env.MAX_PLAN_NODES` bounds.
    """
    kept: list[frozenset[str]] = []
    for node in nodes:
        words = frozenset(words_of(node.description))
        if len(words) >= MIN_WORDS and all(len(words & other) / len(words | other) < ALIKE for other in kept):
            kept.append(words)
    return len(kept) / len(nodes) if nodes else 0.0


def _success(
    request: Request, hidden: HiddenPlan, judged: tuple[PlanGraph, Coverage], reference: PlanGraph, seed: int
) -> float:
    """Return how often the work gets done, against the reference with the same luck: tasks or needs, the lower."""
    tasks, needs = _mean_shares(request, *judged, seed)
    best_tasks, best_needs = _mean_shares(request, reference, cover(reference, hidden), seed)
    ratios = (found / best if best > 0 else 1.0 for found, best in ((tasks, best_tasks), (needs, best_needs)))
    return min(1.0, min(ratios) / AS_GOOD)


def _mean_shares(request: Request, graph: PlanGraph, coverage: Coverage, seed: int) -> tuple[float, float]:
    """Return the share of all tasks that are done, and of all requirements, over the executions."""
    luck = {leaf: f"need {place}" for place, leaves in enumerate(coverage.met) for leaf in leaves}
    tasks: list[float] = []
    needs: list[float] = []
    for number in range(NUM_EXECUTIONS):
        execution = simulate(
            graph,
            num_workers=request.num_workers,
            seed=f"{seed}/{number}",
            deadline_h=request.deadline_h,
            doomed=coverage.too_early,
            luck=luck,
        )
        tasks.append(execution.done_share)
        done = [any(execution.states[graph.node(leaf).id] is State.done for leaf in leaves) for leaves in coverage.met]
        needs.append(sum(done) / len(done))
    return math.fsum(tasks) / NUM_EXECUTIONS, math.fsum(needs) / NUM_EXECUTIONS


def _coverage_findings(request: Request, hidden: HiddenPlan, coverage: Coverage) -> list[str]:
    """Return which needs are not met and which rules not kept, by what the request says of them."""
    found: list[str] = []
    for need, requirement, tasks in zip(request.needs, hidden.requirements, coverage.met, strict=False):
        if not tasks:
            found.append(f"coverage: no task of type {requirement.type} for '{need}'")
    found += [f"order: not kept: {rule}" for rule, kept in zip(request.rules, coverage.kept, strict=False) if not kept]
    return found

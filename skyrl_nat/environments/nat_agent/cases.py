"""The hidden calls of one judgement: recorded ones, and fresh ones by a seed, with what the references say.

All rollouts of a group get the same seed and so the same cases; another step or task gives others, so knowing
old inputs by heart does not pay.
"""

import random
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from skyrl_nat.environments.nat_agent.generators import draw_input
from skyrl_nat.environments.nat_agent.oracle import Answer, Call, ReferenceOracle
from skyrl_nat.environments.nat_agent.payload import (
    AgentSpec,
    EndToEnd,
    HiddenSpec,
    Vector,
    WorkflowType,
)

NUM_FRESH = 8
"""Fresh inputs of every function."""
NUM_FRESH_END_TO_END = 3
NUM_MCP = 3
"""Calls of every served tool."""
MAX_REMEMBERED = 256
FINALS = ("The answer is {0}.", "It gave {0}.", "Result: {0}")
FINALS_OF_TWO = ("First {0}, then {1}.", "{0} and {1}", "They gave {0} / {1}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """What one judgement asks, with the right answers."""

    calls: tuple[Vector, ...]
    """Inputs with an output: recorded ones, then fresh ones."""
    num_recorded: int
    num_repeated: int
    """How many of the calls, the last ones, have come before."""
    errors: tuple[Vector, ...]
    """Inputs that must be refused."""
    e2e: tuple[EndToEnd, ...]
    e2e_errors: tuple[EndToEnd, ...]
    """Workflow inputs that must be refused; `output` names the exception."""
    mcp: tuple[Vector, ...]
    canaries: tuple[Vector, ...]


class CaseDrawer:
    """Draws cases and remembers the last ones; thread-safe."""

    def __init__(self, oracle: ReferenceOracle) -> None:
        """Keep who knows the answers."""
        self._oracle = oracle
        self._remembered: OrderedDict[tuple[str, int], Cases] = OrderedDict()
        self._lock = threading.Lock()

    def draw(self, task_id: str, spec: AgentSpec, hidden: HiddenSpec, seed: int) -> Cases:
        """Return the cases of a task and a seed.

        Raises:
            SandboxError: The references could not be asked.
            DataError: A generator is broken.
        """
        key = (task_id, seed)
        with self._lock:  # one drawing at a time: the others of a group want the same cases
            if key not in self._remembered:
                self._remembered[key] = draw_cases(self._oracle, spec, hidden, random.Random(f"{task_id}/{seed}"))
                while len(self._remembered) > MAX_REMEMBERED:
                    self._remembered.popitem(last=False)
            return self._remembered[key]


def draw_cases(oracle: ReferenceOracle, spec: AgentSpec, hidden: HiddenSpec, rng: random.Random) -> Cases:
    """Return recorded and fresh cases."""
    asked: list[tuple[str, Any]] = []
    for tool in spec.functions:
        asked += [(tool.name, draw_input(tool, hidden.generators.get(tool.name, {}), rng)) for _ in range(NUM_FRESH)]
    [answers] = oracle.answers(hidden, [Call(chain=(name,), input=value) for name, value in asked])
    calls, errors = list(hidden.vectors), list(hidden.errors)
    for (name, value), answer in zip(asked, answers, strict=True):
        if not answer.raises:
            calls.append(Vector(tool=name, input=value, output=answer.output))
        elif any(case.raises == answer.raises for case in spec.tool(name).errors):
            errors.append(Vector(tool=name, input=value, raises=answer.raises))
    drawn = draw_end_to_end(oracle, spec, hidden, rng, NUM_FRESH_END_TO_END)
    last = spec.functions[-1].name
    is_own = spec.workflow.type in (WorkflowType.single, WorkflowType.custom)
    served = [vector for name in spec.integration.mcp for vector in _some(calls, name, rng)]
    first = {vector.tool: vector for vector in reversed(calls)}
    return Cases(
        # Each function's first call comes again at the end: whoever counts calls gives himself away.
        calls=(*calls, *first.values()),
        num_recorded=len(hidden.vectors),
        num_repeated=len(first),
        errors=tuple(errors),
        e2e=(*hidden.e2e, *drawn),
        e2e_errors=tuple(
            EndToEnd(input=vector.input, output=vector.raises) for vector in errors if is_own and vector.tool == last
        ),
        mcp=tuple(served),
        canaries=hidden.canaries,
    )


def _some(calls: Sequence[Vector], tool: str, rng: random.Random) -> list[Vector]:
    """Return some calls of a tool; fresh ones stand last and are taken first."""
    own = [vector for vector in calls if vector.tool == tool]
    chosen = own[-NUM_MCP:]
    rng.shuffle(chosen)
    return chosen


def draw_end_to_end(
    oracle: ReferenceOracle, spec: AgentSpec, hidden: HiddenSpec, rng: random.Random, count: int
) -> list[EndToEnd]:
    """Return up to `count` fresh runs of the workflow with the LLM's script and the right output."""
    kind = spec.workflow.type
    if kind in (WorkflowType.react_agent, WorkflowType.tool_calling_agent):
        return _draw_agent_runs(oracle, spec, hidden, rng, count)
    runs: list[tuple[Call, tuple[dict[str, Any], ...]]] = []
    for _ in range(count):
        chain, script = _chain_of(spec, rng)
        first = spec.tool(chain[0])
        value = draw_input(first, hidden.generators.get(first.name, {}), rng)
        runs.append((Call(chain=chain, input=value), script))
    [answers] = oracle.answers(hidden, [call for call, _ in runs])
    is_text = kind is WorkflowType.router_agent
    return [
        EndToEnd(input=call.input, output=str(answer.output) if is_text else answer.output, script=script)
        for (call, script), answer in zip(runs, answers, strict=True)
        if not answer.raises and answer.output != ""
    ]


def _chain_of(spec: AgentSpec, rng: random.Random) -> tuple[tuple[str, ...], tuple[dict[str, Any], ...]]:
    if spec.workflow.type is WorkflowType.sequential_executor:
        return spec.workflow.uses, ()
    if spec.workflow.type is WorkflowType.router_agent:
        branch = rng.choice(spec.workflow.uses)
        return (branch,), ({"say": branch},)
    return (spec.functions[-1].name,), ()


def _draw_agent_runs(
    oracle: ReferenceOracle, spec: AgentSpec, hidden: HiddenSpec, rng: random.Random, count: int
) -> list[EndToEnd]:
    plans: list[list[Call]] = []
    for _ in range(count):
        names = [rng.choice(spec.workflow.uses) for _ in range(rng.randint(1, 2))]
        plans.append(
            [
                Call(chain=(name,), input=draw_input(spec.tool(name), hidden.generators.get(name, {}), rng))
                for name in names
            ]
        )
    [answers] = oracle.answers(hidden, [call for plan in plans for call in plan])
    pending = iter(answers)
    runs: list[EndToEnd] = []
    for plan in plans:
        said = [next(pending) for _ in plan]
        if all(_is_plain(answer) for answer in said):
            runs.append(_agent_run(spec, plan, said, rng))
    return runs


def _is_plain(answer: Answer) -> bool:
    """Whether an agent passes the answer on as plain text: NAT words empty and nested ones in its own way."""
    return not answer.raises and isinstance(answer.output, (str, int, float)) and answer.output != ""


def _agent_run(spec: AgentSpec, plan: Sequence[Call], said: Sequence[Answer], rng: random.Random) -> EndToEnd:
    final = rng.choice(FINALS if len(plan) == 1 else FINALS_OF_TWO)
    script: list[dict[str, Any]] = []
    for call in plan:
        tool = spec.tool(call.chain[0])
        value = call.input if len(tool.arguments) > 1 else {next(iter(tool.arguments)): call.input}
        script.append({"call": tool.name, "input": value})
    wanted = " and ".join(f"{call.chain[0]} for {call.input!r}" for call in plan)
    return EndToEnd(
        input=f"Please use {wanted}.",
        output=final.format(*(str(answer.output) for answer in said)),
        script=(*script, {"final": final}),
    )

"""Laws that a reference must obey: a closed list, checked on drawn inputs when the data is made.

| kind | says |
|---|---|
| `idempotent` | f(f(x)) = f(x) |
| `involution` | f(f(x)) = x |
| `round_trip` | g(f(x)) = x, with g named by `other` |
| `even`, `odd` | f(-x) = f(x), f(-x) = -f(x) |
| `monotone` | x <= y gives f(x) <= f(y) |
| `bounds` | `low` <= f(x) <= `high`, either may be missing |
| `permutation_invariant` | the order of a list says nothing |
"""

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from skyrl_nat.environments.nat_agent.compare import is_same
from skyrl_nat.environments.nat_agent.generators import draw_input
from skyrl_nat.environments.nat_agent.oracle import Answer, Call, ReferenceOracle
from skyrl_nat.environments.nat_agent.payload import AgentSpec, HiddenSpec

NUM_INPUTS = 24
Law = Mapping[str, Any]
Pair = tuple[Any, Answer, Answer]
"""An input, f of it, and what `_SECOND` asks beside it."""


def broken_laws(oracle: ReferenceOracle, spec: AgentSpec, hidden: HiddenSpec, rng: random.Random) -> list[str]:
    """Return a sentence for every law that a reference breaks.

    Raises:
        KeyError: A law is of no known kind.
    """
    broken: list[str] = []
    for law in hidden.properties:
        tool = spec.tool(law["tool"])
        inputs = [draw_input(tool, hidden.generators.get(tool.name, {}), rng) for _ in range(NUM_INPUTS)]
        second, holds = _LAWS[law["kind"]]
        calls = [Call(chain=(tool.name,), input=value) for value in inputs]
        calls += [second(law, tool.name, value, rng) for value in inputs]
        [answers] = oracle.answers(hidden, calls)
        pairs = [
            (value, first, other)
            for value, first, other in zip(inputs, answers, answers[len(inputs) :], strict=False)
            if not first.raises and not other.raises
        ]
        if not holds(law, pairs):
            broken.append(f"{tool.name} must be {law['kind']}, but is not for one of {[pair[0] for pair in pairs][:5]}")
    return broken


def _again(law: Law, tool: str, value: Any, rng: random.Random) -> Call:
    del rng
    return Call(chain=(tool, law.get("other", tool)), input=value)


def _negated(law: Law, tool: str, value: Any, rng: random.Random) -> Call:
    del law, rng
    return Call(chain=(tool,), input=-value)


def _shuffled(law: Law, tool: str, value: Any, rng: random.Random) -> Call:
    del law
    return Call(chain=(tool,), input=rng.sample(value, len(value)))


def _same(law: Law, tool: str, value: Any, rng: random.Random) -> Call:
    del law, rng
    return Call(chain=(tool,), input=value)


def _all(check: Callable[[Any, Any, Any], bool]) -> Callable[[Law, Sequence[Pair]], bool]:
    return lambda _, pairs: all(check(value, first.output, other.output) for value, first, other in pairs)


def _is_monotone(law: Law, pairs: Sequence[Pair]) -> bool:
    del law
    ordered = [first.output for _, first, _ in sorted(pairs, key=lambda pair: pair[0])]
    return all(low <= high for low, high in itertools.pairwise(ordered))


def _is_bounded(law: Law, pairs: Sequence[Pair]) -> bool:
    low, high = law.get("low", float("-inf")), law.get("high", float("inf"))
    return all(low <= first.output <= high for _, first, _ in pairs)


_LAWS: dict[str, tuple[Callable[..., Call], Callable[[Law, Sequence[Pair]], bool]]] = {
    "idempotent": (_again, _all(lambda _, first, other: is_same(first, other))),
    "involution": (_again, _all(lambda value, _, other: is_same(value, other))),
    "round_trip": (_again, _all(lambda value, _, other: is_same(value, other))),
    "even": (_negated, _all(lambda _, first, other: is_same(first, other))),
    "odd": (_negated, _all(lambda _, first, other: is_same(first, -other))),
    "permutation_invariant": (_shuffled, _all(lambda _, first, other: is_same(first, other))),
    "monotone": (_same, _is_monotone),
    "bounds": (_same, _is_bounded),
}
KINDS = tuple(_LAWS)

"""Asks the references of one task, many calls at once, and remembers what they said."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from skyrl_nat.environments.nat_agent.oracle import Answer, Call, ReferenceOracle
from skyrl_nat.environments.nat_agent.payload import HiddenSpec
from skyrl_nat.errors import DataError


class Asker:
    """Answers of one task's references."""

    def __init__(self, oracle: ReferenceOracle, hidden: HiddenSpec) -> None:
        """Keep who is asked.

        Args:
            oracle: Runs references in a sandbox.
            hidden: Whose references; only they are read.
        """
        self.oracle = oracle
        self.hidden = hidden
        self._said: dict[str, Answer] = {}

    def fetch(self, calls: Iterable[tuple[Sequence[str], Any]]) -> None:
        """Ask many calls at once: chains of functions with their inputs."""
        new = {key: Call(chain=tuple(chain), input=value) for chain, value in calls if (key := _key(chain, value))}
        new = {key: call for key, call in new.items() if key not in self._said}
        if new:
            [answers] = self.oracle.answers(self.hidden, list(new.values()))
            self._said |= dict(zip(new, answers, strict=True))

    def answer(self, tool: str, value: Any, *more: str) -> Answer:
        """Return what a function says, or a chain of them."""
        self.fetch([((tool, *more), value)])
        return self._said[_key((tool, *more), value)]

    def output(self, tool: str, value: Any, *more: str) -> Any:
        """Return the output.

        Raises:
            DataError: The reference raises.
        """
        answer = self.answer(tool, value, *more)
        if answer.raises:
            raise DataError(f"{tool} must answer {value!r}, but raises {answer.raises}: {answer.message}")
        return answer.output

    def raised(self, tool: str, value: Any) -> str:
        """Return the name of the exception.

        Raises:
            DataError: It is no ValueError, or none at all.
        """
        answer = self.answer(tool, value)
        if answer.raises != "ValueError":
            raise DataError(f"{tool} must raise ValueError for {value!r}, but gives {answer}")
        return answer.raises

    def differing(self, sources: Sequence[tuple[str, str]], inputs: dict[str, list[Any]]) -> list[list[bool]]:
        """Return for every changed source the inputs of its function that get another outcome.

        Args:
            sources: Function and source in place of its reference.
            inputs: Function -> inputs.
        """
        found: list[list[bool]] = []
        for name in dict.fromkeys(name for name, _ in sources):
            texts = [text for other, text in sources if other == name]
            calls = [Call(chain=(name,), input=value) for value in inputs[name]]
            right, *wrong = self.oracle.answers(self.hidden, calls, [{}, *({name: text} for text in texts)])
            found += [[_outcome(a) != _outcome(b) for a, b in zip(right, row, strict=True)] for row in wrong]
        return found


def _outcome(answer: Answer) -> tuple[str, str]:
    return json.dumps(answer.output), answer.raises


def _key(chain: Sequence[str], value: Any) -> str:
    return json.dumps([list(chain), value])

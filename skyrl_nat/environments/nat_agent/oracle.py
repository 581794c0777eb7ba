"""What the right answers are: hidden references run on inputs, apart from everything that the policy wrote.

References run in a sandbox of their own, which never holds a file of the policy: what they say stays on this
side, and only inputs go to the other one.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skyrl_nat.environments.nat_agent.payload import HiddenSpec
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import Sandbox, SandboxJob

_MAIN = "from references import answer\nfor report in answer(arguments):\n    emit(report)\n"
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One input for a function, or for a chain of them, each taking what the one before gave."""

    chain: tuple[str, ...]
    input: Any
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options in place of those of the task's workflow file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a reference says."""

    output: Any = None
    raises: str = ""
    """Name of the exception class; empty where there is an output."""
    message: str = ""


class UnansweredError(SandboxError):
    """The references ran, but did not answer every call within their limits: of the calls' making."""


class ReferenceOracle:
    """Answers from references; thread-safe."""

    def __init__(self, sandbox: Sandbox) -> None:
        """Take a sandbox that runs nothing else; closed with the oracle."""
        self._sandbox = sandbox
        self._lock = threading.Lock()
        self._is_open = True

    def answers(
        self, hidden: HiddenSpec, calls: Sequence[Call], variants: Sequence[Mapping[str, str]] = ({},)
    ) -> list[list[Answer]]:
        """Return the answer to every call, for every variant.

        Args:
            hidden: Whose references.
            calls: What to ask.
            variants: Function -> source in place of its reference; the empty one asks the references themselves.

        Raises:
            UnansweredError: They did not answer every call.
            SandboxError: Their sandbox failed.
        """
        if not calls or not variants:
            return [[] for _ in variants]
        references = {name: {"source": item.source, "config": item.config} for name, item in hidden.reference.items()}
        arguments = {
            "references": references,
            "variants": [dict(variant) for variant in variants],
            "calls": [{"chain": list(c.chain), "input": c.input, "options": dict(c.options)} for c in calls],
        }
        job = SandboxJob(kind="python", files={"main.py": _MAIN}, arguments=arguments, timeout_s=_TIMEOUT_S)
        result = self._sandbox.run(job)
        reports = result.output.get("reports", [])
        if result.output.get("end") != "done" or len(reports) != len(calls) * len(variants):
            raise UnansweredError(
                f"references must answer every call, got {len(reports)} of {len(calls) * len(variants)} answers "
                f"({result.output.get('end', result.status)}): {result.log[-300:]} {reports[-1:]}. "
                "Build the task file again"
            )
        found: list[list[Answer]] = [[] for _ in variants]
        for report in reports:
            found[report["variant"]].append(
                Answer(output=report.get("output"), raises=report.get("raises", ""), message=report.get("message", ""))
            )
        return found

    def close(self) -> None:
        """End the sandbox; safe to call twice."""
        self._sandbox.close()

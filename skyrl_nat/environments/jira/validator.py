"""The judge of the language task: replays the calls in a state machine of its own."""

import time
from collections.abc import Mapping
from typing import Any

from skyrl_nat.environments.jira.catalogue import read_issue
from skyrl_nat.environments.jira.machine import Machine
from skyrl_nat.rewards.rubric import make_rubric
from skyrl_nat.types import RewardResult, StageReport, Task

DEFAULT_WEIGHTS: dict[str, float] = {"progress": 0.4, "workflow": 0.5, "economy": 0.1}
"""Parts: share of the plan that was done in its turn; the verifier's verdict, 0 or 1; share of the turns that did such
a step. Only an episode that is exactly the plan has all three at 1, and no way of breaking off early raises one."""


class JiraValidator:
    """`Validator` of the family; holds no state, so threads may share it."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        """Take the weights that the config sets apart from `DEFAULT_WEIGHTS`.

        Raises:
            ConfigError: A name is no part, or no weight is above 0.
        """
        self._rubric = make_rubric(DEFAULT_WEIGHTS, weights or {})

    def validate(self, task: Task, artifact: dict[str, Any], *, seed: int = 0, is_final: bool = False) -> RewardResult:
        """Return the reward of an episode; see `Validator`. Nothing here is by chance, and no check is slow."""
        del seed, is_final
        started = time.monotonic()
        machine = Machine(read_issue(task.payload["issue"]))
        calls: list[Any] = list(artifact.get("calls", []))
        state, findings = machine.start(), list[str]()
        for number, call in enumerate(calls, 1):
            if state.is_ended:
                break
            if call not in machine.workflow.tool_names:
                findings.append(f"turn {number}: no tool was named")
                continue
            transition = machine.apply(state, call)
            state = transition.state
            if not transition.is_valid:
                findings.append(f"turn {number}: {call} was not possible: {transition.reason}")
        verdict = machine.judge(state)
        seconds = time.monotonic() - started
        return self._rubric.score(
            {
                "progress": state.num_progress / len(machine.plan),
                "workflow": float(verdict.is_ok),
                "economy": state.num_progress / max(1, len(calls)),
            },
            findings=[*verdict.findings, *findings],
            stages=[
                StageReport(
                    name="workflow", is_ok=verdict.is_ok, seconds=seconds, evidence="; ".join(verdict.findings)
                ),
            ],
        )

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

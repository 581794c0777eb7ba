"""Judges a whole plan against the hidden half of its task."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.task_dag.env import MAX_PLAN_NODES, NO_TASKS
from skyrl_nat.environments.task_dag.graph import PlanGraph
from skyrl_nat.environments.task_dag.payload import HiddenPlan, Request, parse_hidden, parse_nodes, parse_request
from skyrl_nat.environments.task_dag.plan import check_plan
from skyrl_nat.environments.task_dag.rewards import REQUIRED, WEIGHTS, Effort, compute_parts, empty_parts
from skyrl_nat.rewards.rubric import make_rubric
from skyrl_nat.rewards.validators import SAMPLED_TOKENS
from skyrl_nat.types import RewardResult, Task


class TaskDagValidator:
    """Implements `rewards.validators.Validator`; holds nothing but the weights."""

    def __init__(self, config: EnvironmentConfig) -> None:
        """Take the weights.

        Args:
            config: Section `environment`.

        Raises:
            ConfigError: A weight is of no part of this family.
        """
        self._rubric = make_rubric(WEIGHTS, config.reward_weights)

    def validate(self, task: Task, artifact: dict[str, Any], *, seed: int = 0, is_final: bool = False) -> RewardResult:
        """Return the reward of a plan.

        A plan that has a fault, or whose episode failed, scores 0 with the reason. Only an answer whose *form* was at
        fault may earn `shaping_answers`, whose weight is 0 unless the config raises it.

        Args:
            task: With its hidden part.
            artifact: What the environment handed over: `nodes`, `num_turns`, `failure`, `is_valid`, `answer_share`,
                and the tokens sampled where the plan was made by a rollout.
            seed: Of the executions; the same for all that are compared with each other.
            is_final: Makes no difference.

        Raises:
            DataError: One half of the task is not whole.
        """
        del is_final
        request, hidden = parse_request(task.payload), parse_hidden(task.hidden)
        findings: list[str] = []
        parts = _judge(request, hidden, artifact, seed, findings)
        result = self._rubric.score(parts, findings=findings)
        return dataclasses.replace(result, is_success=all(parts[name] == 1.0 for name in REQUIRED))

    def close(self) -> None:
        """Nothing to release."""


def _judge(
    request: Request, hidden: HiddenPlan, artifact: Mapping[str, Any], seed: int, findings: list[str]
) -> dict[str, float]:
    if failure := str(artifact.get("failure", "")):
        findings.append(failure)
        return empty_parts(_share(artifact) if artifact.get("is_valid") is True else 0.0)
    try:
        nodes = parse_nodes(artifact.get("nodes", []))
        num_turns = int(artifact.get("num_turns", 0))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        findings.append(f"invalid plan: nodes must be tasks, {type(error).__name__}: {error}. Write them anew")
        return empty_parts()
    problems = [problem.message for problem in check_plan(nodes, max_nodes=MAX_PLAN_NODES)]
    if not nodes or problems:
        findings += [f"invalid plan: {message}" for message in problems or [NO_TASKS]]
        return empty_parts()
    effort = Effort(num_turns=num_turns, num_tokens=artifact.get(SAMPLED_TOKENS))
    return compute_parts(request, hidden, PlanGraph(nodes), effort, seed=seed, findings=findings)


def _share(artifact: Mapping[str, Any]) -> float:
    share = artifact.get("answer_share")
    return min(1.0, max(0.0, float(share))) if isinstance(share, int | float) else 0.0

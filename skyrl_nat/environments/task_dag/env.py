"""The environment: the policy decomposes the request node by node and stops."""

import json
from collections.abc import Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from skyrl_nat.environments.task_dag.graph import Node, PlanGraph
from skyrl_nat.environments.task_dag.ids import ROOT, normal_id, shown
from skyrl_nat.environments.task_dag.payload import Decomposition, node_json, parse_request
from skyrl_nat.environments.task_dag.plan import check_plan, normal_nodes
from skyrl_nat.environments.task_dag.prompts import build_prompt, observation
from skyrl_nat.environments.task_dag.protocol import Broken, Stop, parse_answer
from skyrl_nat.environments.task_dag.simulation import simulate
from skyrl_nat.environments.task_dag.task_types import CALM
from skyrl_nat.rewards.validators import Validator
from skyrl_nat.types import Message, RewardResult, Task

FAMILY = "task_dag"
MAX_PLAN_NODES = 100
"""Tasks and groups of a plan that is judged."""
NO_TASKS = "a plan must have tasks before it stops, got none. Decompose the request first"


class TaskDagEnv(BaseTextEnv):
    """A skyrl-gym environment; its only reward comes with the end, and only where it was given the hidden part.

    An answer that breaks the protocol, or makes the plan invalid, ends the episode as a failure of the policy: no
    later step takes anything or pays anything.
    """

    def __init__(self, env_config: Mapping[str, Any] | None = None, extras: Mapping[str, Any] | None = None) -> None:
        """Read the task.

        Args:
            env_config: Nothing of it matters here; skyrl-gym hands it over.
            extras: `payload` (dict or JSON text) of the task, `max_turns` (8). For rewards: `hidden` (dict or JSON
                text), `validator`, `task_id`, `seed` of the executions (0).

        Raises:
            DataError: The payload is no request.
        """
        super().__init__()
        del env_config
        extras = extras or {}
        self._payload = _read(extras["payload"])
        self._hidden = _read(extras.get("hidden") or {})
        self._request = parse_request(self._payload)
        self._task_id = str(extras.get("task_id", self._request.title))
        self._seed = int(extras.get("seed", 0))
        self._validator: Validator | None = extras.get("validator")
        self.max_turns = int(extras.get("max_turns", 8))
        self._nodes: list[Node] = []
        self._is_stopped = False
        self._is_done = False
        self._reason = ""
        """Why the episode failed; empty where it did not."""
        self._is_valid = True
        """False where the plan, not the form of an answer, is at fault."""
        self._answer_shares: list[float] = []
        """How far each answer was taken, in [0, 1]."""
        self._result: RewardResult | None = None

    def init(self, prompt: list[Message]) -> tuple[list[Message], dict[str, Any]]:
        """Return the first messages: those given, or the task's own."""
        return (list(prompt) or build_prompt(self._request, self.max_turns)), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Take one answer.

        Args:
            action: The completion's text.
        """
        if self._is_done:
            return self._output([])
        self.turns += 1
        answer = parse_answer(action)
        share = answer.share if isinstance(answer, Broken) else 1.0
        self._answer_shares.append(share)
        if isinstance(answer, Broken):
            self._reason = f"broken answer: {answer.reason}"
        elif isinstance(answer, Stop):
            self._is_stopped = True
            self._refuse("" if self._nodes else NO_TASKS)
        else:
            self._refuse(self._decompose(answer))
        self._is_done = self._is_stopped or bool(self._reason) or self.turns >= self.max_turns
        if self._is_done:
            self._result = self._judge()
            return self._output([], 0.0 if self._result is None else self._result.total)
        return self._output([{"role": "user", "content": self._observation()}])

    def artifact(self) -> dict[str, Any]:
        """Return the plan so far, how it was made, and why it failed where it did."""
        return {
            "nodes": [node_json(node) for node in self._nodes],
            "num_turns": self.turns,
            "is_stopped": self._is_stopped,
            "failure": self._reason,
            "is_valid": self._is_valid,
            "answer_share": sum(self._answer_shares) / max(1, self.turns),
        }

    def get_metrics(self) -> dict[str, Any]:
        """Return counts of the episode, and the reward's parts once it was judged here."""
        metrics: dict[str, Any] = {
            "num_turns": self.turns,
            "num_nodes": len(self._nodes),
            "is_stopped": int(self._is_stopped),
            "is_broken_answer": int(bool(self._reason) and self._is_valid),
            "is_invalid_plan": int(not self._is_valid),
        }
        if self._is_done and self._nodes:
            metrics |= self._plan_metrics()
        if self._result is not None:
            metrics["is_success"] = int(self._result.is_success)
            metrics.update({f"reward_{name}": value for name, value in self._result.parts.items()})
        return metrics

    def _plan_metrics(self) -> dict[str, float]:
        """Return size and shape of the plan, and what it takes where all goes as planned."""
        graph = PlanGraph(self._nodes)
        serial = sum(CALM[graph.node(leaf).type].hours for leaf in graph.leaves)
        hours = simulate(graph, num_workers=self._request.num_workers, types=CALM).hours
        return {
            "num_subtasks": len(graph.leaves),
            "depth": graph.depth(),
            "execution_h": hours,
            "parallelism_ratio": serial / hours if hours else 1.0,
        }

    def _decompose(self, answer: Decomposition) -> str:
        """Add the subtasks; returns why they make no plan, empty where they do."""
        name = normal_id(answer.node)
        if name != ROOT and all(node.id != name for node in self._nodes):
            return f"node must be '{ROOT}' or a task of the plan, got {shown(name)}. Choose one of them"
        if any(node.parent == name for node in self._nodes):
            return f"a node must be decomposed once, {shown(name)} already is. Choose another or stop"
        nodes = normal_nodes([*self._nodes, *answer.subtasks])
        problems = check_plan(nodes, max_nodes=MAX_PLAN_NODES)
        if not problems:
            self._nodes = nodes
        return "; ".join(problem.message for problem in problems)

    def _refuse(self, reason: str) -> None:
        if reason:
            self._reason, self._is_valid = f"invalid plan: {reason}", False

    def _observation(self) -> str:
        return observation(PlanGraph(self._nodes), self.max_turns - self.turns)

    def _output(self, observations: list[dict[str, str]], reward: float = 0.0) -> BaseTextEnvStepOutput:
        failure = {"is_policy_failure": bool(self._reason), "reason": self._reason}
        return BaseTextEnvStepOutput(
            observations=observations,
            reward=reward,
            done=self._is_done,
            metadata={**self.get_metrics(), **failure},
            postprocessed_action=None,
        )

    def _judge(self) -> RewardResult | None:
        """Judge the plan; None where the judge sits elsewhere, as in the trainer's reward workers."""
        if self._validator is None or not self._hidden:
            return None
        task = Task(task_id=self._task_id, family=FAMILY, payload=self._payload, hidden=self._hidden)
        return self._validator.validate(task, self.artifact(), seed=self._seed)


def _read(value: Any) -> dict[str, Any]:
    return json.loads(value) if isinstance(value, str) else dict(value)

"""The workflow as a language task: the policy reads an issue and names one tool a turn."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from skyrl_nat.environments.jira.catalogue import read_issue
from skyrl_nat.environments.jira.machine import Machine, State, Transition
from skyrl_nat.environments.jira.prompts import build_observation, build_prompt
from skyrl_nat.types import Message

DEFAULT_MAX_TURNS = 12


class JiraTextEnv(BaseTextEnv):
    """A skyrl-gym environment over `Machine`; rewards of its steps are those of the Gymnasium environment.

    An answer is strict: one tool name, blanks around it are allowed, anything else is broken. A broken answer costs its
    turn and `rewards.broken` and changes no state. Ending the episode there would pay a weak policy for breaking off.
    """

    def __init__(self, env_config: Mapping[str, Any] | None = None, extras: Mapping[str, Any] | None = None) -> None:
        """Read the task.

        Args:
            env_config: Not used; skyrl-gym passes it.
            extras: `payload` (dict or JSON text) with the issue, `max_turns` (12).

        Raises:
            DataError: The payload holds no issue of a shipped workflow.
        """
        super().__init__()
        del env_config
        given = extras or {}
        self._machine = Machine(read_issue(_read(given["payload"]).get("issue", {})))
        self.max_turns = int(given.get("max_turns", DEFAULT_MAX_TURNS))
        self._state: State = self._machine.start()
        self._calls: list[str | None] = []
        self._return = 0.0
        self._num_invalid = 0

    def init(self, prompt: list[Message]) -> tuple[list[Message], dict[str, Any]]:
        """Return the first messages: those given, or the issue's own."""
        return (list(prompt) or build_prompt(self._machine)), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Do one turn.

        Args:
            action: The completion's text.
        """
        self.turns += 1
        tool, reason = parse_tool(action, self._machine.workflow.tool_names)
        transition: Transition = (
            self._machine.refuse(self._state, reason) if tool is None else self._machine.apply(self._state, tool)
        )
        self._calls.append(tool)
        self._state = transition.state
        self._return += transition.reward
        self._num_invalid += tool is not None and not transition.is_valid
        text = build_observation(self._machine, tool, transition)
        is_done = self._state.is_ended or self.turns >= self.max_turns
        return BaseTextEnvStepOutput(
            observations=[] if is_done else [{"role": "user", "content": text}],
            reward=transition.reward,
            done=is_done,
            metadata={**self.get_metrics(), "reason": transition.reason},
            postprocessed_action=tool,
        )

    def artifact(self) -> dict[str, Any]:
        """Return what the validator judges: `{"calls": [...]}`, the tool of every turn, None where none was named."""
        return {"calls": list(self._calls)}

    def get_metrics(self) -> dict[str, Any]:
        """Return counts of the episode so far."""
        return {
            "num_turns": self.turns,
            "num_broken": self._calls.count(None),
            "num_invalid": self._num_invalid,
            "num_progress": self._state.num_progress,
            "return": self._return,
            "is_ended": int(self._state.is_ended),
            "is_truncated": int(not self._state.is_ended and self.turns >= self.max_turns),
        }


def parse_tool(text: str, names: Sequence[str]) -> tuple[str | None, str]:
    """Return the tool that an answer names; None and a reason where it names none.

    Args:
        text: Of the policy, anything.
        names: Known tools.
    """
    answer = text.strip()
    if answer in names:
        return answer, ""
    if not answer:
        return None, "the answer is empty"
    if len(answer.split()) > 1:
        return None, "more than the name of one tool"
    return None, "no tool has this name"


def _read(value: Any) -> dict[str, Any]:
    return json.loads(value) if isinstance(value, str) else dict(value)

"""The environment: the policy writes files in its turns, asks for checks and finishes."""

import json
from collections.abc import Mapping
from typing import Any, Protocol

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from skyrl_nat.environments.nat_agent.actions import Action, parse_actions
from skyrl_nat.environments.nat_agent.payload import AgentSpec, parse_spec
from skyrl_nat.environments.nat_agent.prompts import LAST_TURN_NOTE, build_prompt
from skyrl_nat.environments.nat_agent.static_checks import MAX_FILE_CHARS, MAX_FILES
from skyrl_nat.types import Message

NO_ACTION = (
    "No file and no function call found. Write each file as a block that starts with ```python agent/register.py "
    "or ```yaml agent/config.yml, then <function=finish></function>."
)


class Checker(Protocol):
    """What `validate` needs; see `PackageChecker`."""

    def check(self, spec: AgentSpec, files: dict[str, str]) -> str:
        """Return the visible report."""
        ...


class NatAgentEnv(BaseTextEnv):
    """A skyrl-gym environment; its reward is 0, the reward worker judges the files.

    Every malformed action costs its turn and gets a short answer; none is an exception.
    """

    def __init__(self, env_config: Mapping[str, Any] | None = None, extras: Mapping[str, Any] | None = None) -> None:
        """Read the task.

        Args:
            env_config: `max_observation_chars` (2000).
            extras: `payload` (dict or JSON text) of the task, `max_turns` (8), `checker` (None: `validate` says
                that checks are switched off).
        """
        super().__init__()
        extras = extras or {}
        payload = extras["payload"]
        self._spec = parse_spec(json.loads(payload) if isinstance(payload, str) else payload)
        self._checker: Checker | None = extras.get("checker")
        self._max_observation_chars = int((env_config or {}).get("max_observation_chars", 2000))
        self.max_turns = int(extras.get("max_turns", 8))
        self._files: dict[str, str] = {}
        self._counts = {"num_malformed_turns": 0, "num_validate_calls": 0, "is_finished": 0}

    def init(self, prompt: list[Message]) -> tuple[list[Message], dict[str, Any]]:
        """Return the first messages: those given, or the task's own."""
        return (list(prompt) or build_prompt(self._spec, self.max_turns)), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Do one turn.

        Args:
            action: The completion's text.
        """
        self.turns += 1
        text = action.encode("utf-8", "replace").decode("utf-8")
        actions = parse_actions(text)
        answers = [self._do(item) for item in actions]
        if not actions or any(item.error for item in actions):
            self._counts["num_malformed_turns"] += 1
        if not actions:
            answers = [NO_ACTION]
        is_finished = any(item.name == "finish" and not item.error for item in actions)
        self._counts["is_finished"] = int(is_finished)
        is_done = is_finished or self.turns >= self.max_turns
        if self.turns == self.max_turns - 1:
            answers.append(LAST_TURN_NOTE)
        observation = cut_middle("\n".join(answer for answer in answers if answer), self._max_observation_chars)
        return BaseTextEnvStepOutput(
            observations=[] if is_done else [{"role": "user", "content": observation}],
            reward=0.0,
            done=is_done,
            metadata={"is_finished": is_finished, "num_files": len(self._files)},
            postprocessed_action=None,
        )

    def artifact(self) -> dict[str, Any]:
        """Return `{"files": {path: text}}`, what was written so far."""
        return {"files": dict(self._files)}

    def get_metrics(self) -> dict[str, Any]:
        """Return counts of the episode."""
        return {**self._counts, "num_turns": self.turns, "num_files": len(self._files)}

    def _do(self, action: Action) -> str:
        if action.error:
            return f"error: {action.error}"
        handlers = {
            "create": self._create,
            "str_replace": self._replace,
            "view": self._view,
            "validate": self._validate,
            "finish": self._finish,
        }
        return handlers[action.name](action.arguments)

    def _create(self, arguments: dict[str, str]) -> str:
        return self._save(arguments["path"], arguments["file_text"])

    def _save(self, path: str, text: str) -> str:
        if len(text) > MAX_FILE_CHARS:
            return f"error: {path} has {len(text)} characters, at most {MAX_FILE_CHARS} are allowed"
        if path not in self._files and len(self._files) >= MAX_FILES:
            return f"error: there are {MAX_FILES} files already, no more are allowed"
        self._files[path] = text
        return f"saved {path} ({len(text.splitlines())} lines)"

    def _replace(self, arguments: dict[str, str]) -> str:
        path = arguments["path"]
        old, new = arguments["old_str"].strip("\n"), arguments["new_str"].strip("\n")
        text = self._files.get(path)
        if text is None:
            return f"error: there is no file {path}"
        if not old or text.count(old) != 1:
            return f"error: old_str must occur exactly once in {path}, it occurs {text.count(old) if old else 0} times"
        return self._save(path, text.replace(old, new))

    def _view(self, arguments: dict[str, str]) -> str:
        text = self._files.get(arguments["path"])
        return text if text is not None else f"error: there is no file {arguments['path']}; have {sorted(self._files)}"

    def _validate(self, arguments: dict[str, str]) -> str:
        del arguments
        self._counts["num_validate_calls"] += 1
        if self._checker is None:
            return "checks are switched off"
        return self._checker.check(self._spec, dict(self._files))

    def _finish(self, arguments: dict[str, str]) -> str:
        del arguments
        return ""


def cut_middle(text: str, max_chars: int) -> str:
    """Return a text of at most `max_chars` characters: its head and its tail where it is longer."""
    if len(text) <= max_chars:
        return text
    mark = f"\n[... {len(text) - max_chars} characters cut ...]\n"
    keep = max_chars - len(mark)
    return text[: keep - keep // 2] + mark + text[len(text) - keep // 2 :]

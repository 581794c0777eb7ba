"""The environment: the policy writes a NAT package in its turns, asks for checks and finishes."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from skyrl_nat.config.environment import Form
from skyrl_nat.environments.nat_agent.actions import COMMANDS, Action, parse_actions, parse_call
from skyrl_nat.environments.nat_agent.observations import cut_middle, neutralise
from skyrl_nat.environments.nat_agent.payload import AgentSpec, parse_spec
from skyrl_nat.environments.nat_agent.prompts import LAST_TURN_NOTE, MULTI_TURN_LAST_NOTE, build_prompt
from skyrl_nat.environments.nat_agent.workspace import MAX_REASONS, BashResult, edit, files_at, take_over
from skyrl_nat.rewards.validators import Validator
from skyrl_nat.types import Message, RewardResult, Task

FAMILY = "nat_agent"
NO_ACTION = (
    "No file and no function call found. Write each file as a block that starts with ```python agent/register.py "
    "or ```yaml agent/config.yml, then <function=finish></function>."
)
NO_WORKBENCH = "error: checks, tests and shell are switched off"


class Bench(Protocol):
    """What `validate`, `run_tests` and `execute_bash` need; see `workbench.Workbench`."""

    def check(self, spec: AgentSpec, files: dict[str, str]) -> str:
        """Return what the visible checks say."""
        ...

    def run_tests(self, spec: AgentSpec, files: dict[str, str], paths: tuple[str, ...] = ()) -> str:
        """Return how the package's own tests went."""
        ...

    def run_bash(self, files: dict[str, str], command: str) -> BashResult:
        """Run a shell command on the files."""
        ...


class NATAgentCreationEnv(BaseTextEnv):
    """A skyrl-gym environment; its only reward comes with the end, and only where it was given the hidden part.

    A malformed call costs its turn and gets a short answer, never an exception. What is raised is a SandboxError: the
    sandbox failed, and the policy is not to blame. Without workbench and validator an environment can be pickled
    between turns.
    """

    def __init__(self, env_config: Mapping[str, Any] | None = None, extras: Mapping[str, Any] | None = None) -> None:
        """Read the task.

        Args:
            env_config: `max_observation_chars` (2000), `form` (one_shot).
            extras: `payload` (dict or JSON text) of the task, `max_turns` (8), `workbench` (None: checks, tests and
                shell are switched off), `form` (overrides the config's: a prompt may have been made for it). For
                rewards: `hidden` (dict or JSON text), `validator`, `task_id`, `seed` of the fresh inputs (0).
        """
        super().__init__()
        config, extras = env_config or {}, extras or {}
        self._payload = _read(extras["payload"])
        self._hidden = _read(extras.get("hidden") or {})
        self._spec = parse_spec(self._payload)
        self._task_id = str(extras.get("task_id", self._spec.name))
        self._seed = int(extras.get("seed", 0))
        self._bench: Bench | None = extras.get("workbench")
        self._validator: Validator | None = extras.get("validator")
        self._form = Form(extras.get("form", config.get("form", Form.one_shot)))
        self.max_observation_chars = int(config.get("max_observation_chars", 2000))
        self.max_turns = int(extras.get("max_turns", 8))
        self._files: dict[str, str] = {}
        self._result: RewardResult | None = None
        self._counts = dict.fromkeys(
            ("num_malformed_turns", "num_validate_calls", "num_test_calls", "num_bash_calls", "is_finished"), 0
        )

    def init(self, prompt: list[Message]) -> tuple[list[Message], dict[str, Any]]:
        """Return the first messages: those given, or the task's own."""
        return (list(prompt) or build_prompt(self._spec, self._form, self.max_turns)), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Do one turn.

        Args:
            action: The completion's text.

        Raises:
            SandboxError: The sandbox failed.
        """
        self.turns += 1
        text = action.encode("utf-8", "replace").decode("utf-8")
        actions = parse_actions(text) if self._form is Form.one_shot else [parse_call(text)]
        answers = [self._answer(item) for item in actions]
        if not actions or any(item.error for item in actions):
            self._counts["num_malformed_turns"] += 1
        self._counts["is_finished"] = int(any(item.name == "finish" and not item.error for item in actions))
        is_done = bool(self._counts["is_finished"]) or self.turns >= self.max_turns
        if is_done:
            self._result = self._validate_complete_agent()
        text = "\n".join(filter(None, answers)) if actions else NO_ACTION
        return BaseTextEnvStepOutput(
            observations=[] if is_done else [{"role": "user", "content": self._observation(text)}],
            reward=self._calculate_reward(self._result),
            done=is_done,
            metadata=self.get_metrics(),
            postprocessed_action=None,
        )

    def artifact(self) -> dict[str, Any]:
        """Return `{"files": {path: text}}`, what was written so far."""
        return {"files": dict(self._files)}

    def get_metrics(self) -> dict[str, Any]:
        """Return counts of the episode, and the reward's parts once it was judged here."""
        metrics = {**self._counts, "num_turns": self.turns, "num_files": len(self._files)}
        if self._result is not None:
            metrics["is_success"] = int(self._result.is_success)
            metrics.update({f"reward_{name}": value for name, value in self._result.parts.items()})
        return metrics

    def _validate_complete_agent(self) -> RewardResult | None:
        """Judge the whole workspace; None where the judge sits elsewhere, as in the trainer's reward workers."""
        if self._validator is None or not self._hidden:
            return None
        task = Task(task_id=self._task_id, family=FAMILY, payload=self._payload, hidden=self._hidden)
        return self._validator.validate(task, self.artifact(), seed=self._seed)

    def _calculate_reward(self, result: RewardResult | None) -> float:
        return 0.0 if result is None else result.total

    def _observation(self, text: str) -> str:
        if self.turns < self.max_turns - 1:
            return cut_middle(text, self.max_observation_chars)
        note = "\n" + (LAST_TURN_NOTE if self._form is Form.one_shot else MULTI_TURN_LAST_NOTE)
        return cut_middle(text, self.max_observation_chars - len(note)) + note

    def _answer(self, action: Action) -> str:
        """Return what the policy is told of an action; whatever it wrote itself in it is made harmless."""
        if action.error:
            return f"error: {neutralise(action.error)}"
        text = neutralise(self._do(action))
        is_headed = text and self._form is Form.multi_turn
        return f"result of {action.name}:\n{text}" if is_headed else text

    def _do(self, action: Action) -> str:
        if action.name in COMMANDS:
            return edit(self._files, action.name, action.arguments)
        tools: dict[str, Callable[[dict[str, str]], str]] = {
            "validate": self._validate,
            "run_tests": self._run_tests,
            "execute_bash": self._run_bash,
            "finish": lambda arguments: "",
        }
        return tools[action.name](action.arguments)

    def _validate(self, arguments: dict[str, str]) -> str:
        del arguments
        self._counts["num_validate_calls"] += 1
        return NO_WORKBENCH if self._bench is None else self._bench.check(self._spec, dict(self._files))

    def _run_tests(self, arguments: dict[str, str]) -> str:
        self._counts["num_test_calls"] += 1
        path = arguments.get("path", ".")
        paths = files_at(self._files, path) if path != "." else ()
        if path != "." and not paths:
            return f"error: there is no file or folder {path}; there are {', '.join(sorted(self._files)) or 'none'}"
        return NO_WORKBENCH if self._bench is None else self._bench.run_tests(self._spec, dict(self._files), paths)

    def _run_bash(self, arguments: dict[str, str]) -> str:
        self._counts["num_bash_calls"] += 1
        if self._bench is None:
            return NO_WORKBENCH
        result = self._bench.run_bash(dict(self._files), arguments["command"])
        self._files, left_out = take_over(self._files, result)
        ends = {"done": f"exit code {result.exit_code}", "timeout": "stopped at the time limit"}
        lines = [ends.get(result.end, "ended by the sandbox's limits")]
        if left_out:
            lines.append(f"not kept: {'; '.join(left_out[:MAX_REASONS])}")
        return "\n".join([*lines, result.output or "no output"])


def _read(value: Any) -> dict[str, Any]:
    return json.loads(value) if isinstance(value, str) else dict(value)

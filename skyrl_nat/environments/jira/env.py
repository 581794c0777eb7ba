"""Jira workflows as Gymnasium environments; importing this module registers them.

import gymnasium, skyrl_nat.environments.jira.env
env = gymnasium.make("skyrl_nat/JiraIssueResolution-v0")
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skyrl_nat.environments.gymnasium_import import gymnasium
from skyrl_nat.environments.jira.catalogue import Issue, load_issues, load_workflows, workflow_of
from skyrl_nat.environments.jira.machine import Machine, State
from skyrl_nat.environments.jira.optimum import optimal_return

NAMESPACE = "skyrl_nat"
ENVIRONMENT_IDS: tuple[str, ...] = tuple(f"{NAMESPACE}/{workflow.id}" for workflow in load_workflows().values())
NUM_FLAGS = 4
"""Numbers of an observation besides the one-hot tool."""

Observation = NDArray[np.float32]


class JiraEnv(gymnasium.Env[Observation, np.int64]):
    """One workflow on sampled issues.

    Observation, float32 in [0, 1], shape `[tools + 4]`: steps done as a fraction of the limit; 1 once the work is
    ended; the last tool, one-hot (all 0 after a reset); 1 where it was possible (and after a reset); 1 while the goal
    holds. Actions are tools by their number, in the order of `action_names`.

    `terminated` says that a tool ended the work, `truncated` that the step limit is reached; both are True where both
    happen in one step. The step limit is the environment's own.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own attribute, an instance's by type

    def __init__(
        self,
        workflow: str = "issue_resolution",
        *,
        issues: Sequence[Issue] | None = None,
        max_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Choose what is played.

        Args:
            workflow: Name of a shipped workflow.
            issues: Sampled from, all of this workflow; None takes the shipped ones.
            max_steps: Step limit, at least 1; None is the workflow's.
            render_mode: None; there is nothing to see.

        Raises:
            DataError: There is no such workflow.
            ValueError: No issue, one of another workflow, or a limit below 1.
        """
        self.workflow = workflow_of(workflow)
        self.issues = load_issues(workflow) if issues is None else tuple(issues)
        self.max_steps = self.workflow.max_steps if max_steps is None else max_steps
        others = sorted({issue.workflow for issue in self.issues} - {workflow})
        if not self.issues or others or self.max_steps < 1:
            raise ValueError(
                f"a Jira environment must have issues of {workflow} and max_steps >= 1, got {len(self.issues)} issues "
                f"(of others: {', '.join(others) or 'none'}) and {self.max_steps}. Correct them"
            )
        self.action_names = self.workflow.tool_names
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Discrete(len(self.action_names))
        shape = (len(self.action_names) + NUM_FLAGS,)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, shape=shape, dtype=np.float32)
        self._machine: Machine | None = None
        self._state = State(status="", facts=frozenset())
        self._num_steps = 0
        self._last_action: int | None = None
        self._is_last_valid = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode with an issue drawn from this environment's own random stream.

        Args:
            seed: Starts the stream anew; without it, it goes on.
            options: `{"issue": key}` takes this issue and draws none.

        Raises:
            ValueError: There is no such issue.
        """
        super().reset(seed=seed)
        wanted = (options or {}).get("issue")
        found = [issue for issue in self.issues if wanted in (None, issue.key)]
        if not found:
            raise ValueError(
                f"options['issue'] must be the key of an issue of this environment, got {wanted!r}. Use one of "
                f"{', '.join(issue.key for issue in self.issues)}"
            )
        issue = found[0] if wanted is not None else found[int(self.np_random.integers(len(found)))]
        self._machine = Machine(issue)
        self._state = self._machine.start()
        self._num_steps, self._last_action, self._is_last_valid = 0, None, True
        return self._observe(), self._info(self._machine)

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Use a tool. One that is not possible now costs a penalty and changes nothing but the number of steps.

        Args:
            action: An int or a NumPy integer (also as an array without dimensions, as Stable-Baselines3 predicts).

        Raises:
            ValueError: The action is of another type or out of range; nothing has changed.
            gymnasium.error.ResetNeeded: No episode is running.
        """
        number = self._read_action(action)
        machine, is_over = self._machine, self._state.is_ended or self._num_steps >= self.max_steps
        if machine is None or is_over:
            raise gymnasium.error.ResetNeeded(
                f"step needs a running episode, this one {'is over' if is_over else 'never began'}. Call reset first"
            )
        transition = machine.apply(self._state, self.action_names[number])
        self._state = transition.state
        self._num_steps += 1
        self._last_action, self._is_last_valid = number, transition.is_valid
        terminated, truncated = self._state.is_ended, self._num_steps >= self.max_steps
        info = self._info(machine) | {"is_valid": transition.is_valid, "reason": transition.reason}
        if terminated or truncated:
            verdict = machine.judge(self._state)
            info |= {"is_success": verdict.is_ok, "findings": "; ".join(verdict.findings)}
        return self._observe(), float(transition.reward), terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Return `[tools]` bool, which tools are possible now; all False once the work is ended and before a reset.

        `info["action_mask"]` is the same as int8, as `action_space.sample(mask=...)` wants it.
        """
        if self._machine is None:
            return np.zeros(len(self.action_names), dtype=np.bool_)
        return np.array(self._machine.mask(self._state), dtype=np.bool_)

    def _observe(self) -> Observation:
        observation = np.zeros(len(self.action_names) + NUM_FLAGS, dtype=np.float32)
        observation[0] = self._num_steps / self.max_steps
        observation[1] = self._state.is_ended
        if self._last_action is not None:
            observation[2 + self._last_action] = 1.0
        observation[-2] = self._is_last_valid
        observation[-1] = self._machine is not None and self._machine.is_resolved(self._state)
        return observation

    def _info(self, machine: Machine) -> dict[str, Any]:
        return {
            "issue": machine.issue.key,
            "status": self._state.status,
            "action_mask": self.action_masks().astype(np.int8),
        }

    def _read_action(self, action: Any) -> int:
        value = action[()] if isinstance(action, np.ndarray) and action.ndim == 0 else action
        is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not is_integer or not 0 <= value < len(self.action_names):
            raise ValueError(
                f"an action must be an integer in 0..{len(self.action_names) - 1}, got {action!r} "
                f"({type(action).__name__}). Take one of action_names"
            )
        return int(value)


def register() -> None:
    """Register every workflow with Gymnasium in this process; safe to call twice."""
    for workflow in load_workflows().values():
        name = f"{NAMESPACE}/{workflow.id}"
        if name not in gymnasium.registry:
            best = optimal_return(load_issues(workflow.name)[0])
            kwargs = {"workflow": workflow.name}
            gymnasium.register(name, entry_point=f"{__name__}:JiraEnv", kwargs=kwargs, reward_threshold=best)


register()

"""Bounded repair: what the validator finds comes back as the environment's reply, and the policy mends its package."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.environments.family import Family
from skyrl_nat.environments.nat_agent.env import Bench, NATAgentCreationEnv
from skyrl_nat.environments.nat_agent.observations import cut_middle, neutralise
from skyrl_nat.environments.nat_agent.payload import parse_spec
from skyrl_nat.environments.worker import EnvironmentWorker
from skyrl_nat.errors import DeadlineError, WorkerError
from skyrl_nat.rewards.validators import Validator
from skyrl_nat.types import Message, RewardResult, Task

ASKED = "The package is not right yet. Mend it, then call <function=finish></function> again. What was found:"
Judge = Callable[[dict[str, Any], int], RewardResult]
"""Artifact and number of the repair -> verdict."""


class RepairingEnv(BaseTextEnv):
    """The environment of training, in which an end that the validator refuses is not the end yet."""

    def __init__(self, inner: NATAgentCreationEnv, judge: Judge, check: Callable[[], str], max_repairs: int) -> None:
        """Take the episode and who judges it.

        Args:
            inner: The episode; its turns are the limit of all, repairs included.
            judge: Says whether the package is right.
            check: Says what the visible checks find.
            max_repairs: Times that the policy may go on after an end.
        """
        super().__init__()
        self._inner = inner
        self._judge = judge
        self._check = check
        self._max_repairs = max_repairs
        self._num_repairs = 0

    def init(self, prompt: list[Message]) -> tuple[list[Message], dict[str, Any]]:
        """Return the first messages, those of training."""
        return self._inner.init(prompt)

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Do one turn.

        Raises:
            SandboxError: The sandbox failed.
        """
        output = self._inner.step(action)
        self.turns = self._inner.turns
        is_last = self.turns >= self._inner.max_turns or self._num_repairs >= self._max_repairs
        if not output["done"] or is_last:
            return self._counted(output)
        verdict = self._judge(self.artifact(), self._num_repairs)
        if verdict.is_success:
            return self._counted(output)
        self._num_repairs += 1
        found = [line for line in [*self._check().splitlines(), *verdict.findings] if line]
        text = "\n".join([ASKED, *dict.fromkeys(neutralise(line) for line in found)])
        reply = {"role": "user", "content": cut_middle(text, self._inner.max_observation_chars)}
        return self._counted(BaseTextEnvStepOutput(**{**output, "observations": [reply], "done": False}))

    def artifact(self) -> dict[str, Any]:
        """Return `{"files": {path: text}}`, what was written so far."""
        return self._inner.artifact()

    def get_metrics(self) -> dict[str, Any]:
        """Return counts of the episode."""
        return {**self._inner.get_metrics(), "num_repairs": self._num_repairs}

    def _counted(self, output: BaseTextEnvStepOutput) -> BaseTextEnvStepOutput:
        return BaseTextEnvStepOutput(**{**output, "metadata": self.get_metrics()})


class NearEnvironments:
    """`Environments` in this process; what an environment raises is a failure of the infrastructure, as from afar."""

    def __init__(self, worker: EnvironmentWorker) -> None:
        """Take who owns them."""
        self._worker = worker
        self._made: dict[str, dict[str, Any]] = {}
        """Artifacts of environments that are done."""

    async def create(self, rollout_id: str, task: Task) -> list[Message]:
        """Make the environment of a rollout and return its first messages."""
        with _as_worker_error():
            return await self._worker.create(rollout_id, task)

    async def step(self, rollout_id: str, action: str) -> EnvironmentReply:
        """Play one turn."""
        with _as_worker_error():
            reply = await self._worker.step(rollout_id, action)
        if reply.artifact is not None:
            self._made[rollout_id] = reply.artifact
        return reply

    async def close(self, rollout_id: str) -> dict[str, Any]:
        """Forget the environment and return its artifact; one that is done has handed it over already."""
        with _as_worker_error():
            return self._made.pop(rollout_id, None) or await self._worker.close(rollout_id)

    def abandon(self, rollout_id: str) -> None:
        """Forget the environment, without an answer."""
        self._made.pop(rollout_id, None)
        self._worker.abandon(rollout_id)


@contextlib.contextmanager
def _as_worker_error() -> Iterator[None]:
    try:
        yield
    except (WorkerError, DeadlineError):
        raise
    except Exception as error:
        raise WorkerError(f"An environment must answer, it raised {type(error).__name__}: {error}") from error


def repairing_family(
    config: EnvironmentConfig, tasks: Mapping[str, Task], validator: Validator, bench: Bench, *, max_repairs: int
) -> Family:
    """Return the family `nat_agent` with repair.

    Args:
        config: Section `environment`.
        tasks: Id -> task with its hidden part, of the requests that are being served.
        validator: Judges; only its findings reach the policy, never what was expected of hidden inputs.
        bench: Runs checks, tests and shell commands.
        max_repairs: Times that a policy may go on after an end.
    """

    def make_environment(visible: Task, max_turns: int) -> RepairingEnv:
        task, spec = tasks[visible.task_id], parse_spec(visible.payload)
        inner = NATAgentCreationEnv(
            {"max_observation_chars": config.max_observation_chars, "form": config.form},
            {"payload": visible.payload, "max_turns": max_turns, "workbench": bench},
        )
        return RepairingEnv(
            inner,
            lambda artifact, number: validator.validate(task, artifact, seed=number),
            lambda: bench.check(spec, inner.artifact()["files"]),
            max_repairs,
        )

    return Family(make_environment=make_environment, make_validator=lambda: validator, close=lambda: None)

"""Playing one rollout with a harness outside, through the gateway."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from skyrl_nat.rollouts.chat_response import MODEL_NAME
from skyrl_nat.rollouts.deadline import fault_of_deadline
from skyrl_nat.rollouts.gateway import Gateway
from skyrl_nat.rollouts.gateway_session import GatewaySession
from skyrl_nat.rollouts.harness import Harness
from skyrl_nat.rollouts.policy_access import Attempt
from skyrl_nat.types import FinishReason, Outcome, Rollout, Task

GRACE_S = 30.0
"""What a harness has after the deadline to return what exists, and once more to end when cancelled."""


class HarnessPlayer:
    """`Player` that leaves the episode to a harness and takes the tokens from the gateway."""

    def __init__(self, harness: Harness, gateway: Gateway, timeout_s: float, *, grace_s: float = GRACE_S) -> None:
        """Take a harness, the gateway that it asks, and the deadline of a rollout."""
        self._harness = harness
        self._gateway = gateway
        self._timeout_s = timeout_s
        self._grace_s = grace_s

    async def play(self, task: Task, attempt: Attempt) -> Rollout:
        """Play one rollout once; see `Player`."""
        session = self._gateway.open(attempt)
        try:
            ended = await self._run(task.visible(), session)
        finally:
            self._gateway.close(session)
        draft = session.draft
        draft.environment_reward = ended.reward
        draft.outcome, draft.reason = _outcome(session, ended)
        return draft.to_rollout(attempt.rollout_id, task, ended.artifact)

    async def _run(self, task: Task, session: GatewaySession) -> "_Ended":
        playing = asyncio.ensure_future(
            self._harness.play(
                task=task, base_url=self._gateway.base_url(session), api_key=session.api_key, model=MODEL_NAME
            )
        )
        try:
            deadline = asyncio.get_running_loop().time() + self._timeout_s
            await asyncio.wait({playing}, timeout=self._timeout_s)
            if not playing.done():
                if fault := fault_of_deadline(deadline):
                    return _Ended(failure=fault)
                session.end(f"rollout deadline of {self._timeout_s:g} s")
                await asyncio.wait({playing}, timeout=self._grace_s)
            if not playing.done():
                return _Ended(failure=f"the harness must return within {self._grace_s:g} s after the deadline")
            return _read(dict(playing.result()))
        except Exception as error:  # noqa: BLE001 - the border to foreign code: what is caught becomes data
            return _Ended(failure=f"harness: {type(error).__name__}: {error}"[:500])
        finally:
            if not playing.done():
                playing.cancel()
                await asyncio.wait({playing}, timeout=self._grace_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """How a harness ended; see `Harness.play` for the keys that it may return."""

    artifact: dict[str, Any] = field(default_factory=dict[str, Any])
    reward: float = 0.0
    policy_failure: str = ""
    is_done: bool = False
    failure: str = ""
    """Of the harness itself."""


def _read(artifact: dict[str, Any]) -> _Ended:
    return _Ended(
        reward=float(artifact.pop("environment_reward", 0.0)),
        policy_failure=str(artifact.pop("policy_failure", "")),
        is_done=bool(artifact.pop("is_done", False)),
        artifact=artifact,
    )


def _outcome(session: GatewaySession, ended: _Ended) -> tuple[Outcome, str]:
    """Return the outcome of a played rollout and its reason."""
    turns = session.draft.turns
    nothing = "" if turns else "the harness must ask the policy at least once, it did not"
    if broken := session.fault or ended.failure or nothing:
        return Outcome.INFRASTRUCTURE_FAILURE, broken
    if ended.policy_failure:
        return Outcome.POLICY_FAILURE, ended.policy_failure
    is_cut = turns[-1].finish_reason is FinishReason.LENGTH
    reason = "" if ended.is_done else session.limit or ("token limit of a turn" if is_cut else "")
    return (Outcome.TRUNCATED if reason else Outcome.FINISHED), reason

"""The Jira simulation by hand: what is possible, what a tool changes, what it earns, and the verifier's verdict."""

import threading
import uuid
from collections import OrderedDict
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from skyrl_nat.environments.jira.catalogue import Issue, Workflow, load_issues, load_workflows
from skyrl_nat.environments.jira.machine import Machine, State
from skyrl_nat.environments.jira.optimum import find_optimum
from skyrl_nat.service.routes.errors import ServiceError, documented, not_found
from skyrl_nat.service.schemas import described, read_body
from skyrl_nat.service.settings import Limits

MOST_SESSIONS = 64
"""Kept at once; the one that was used longest ago makes room."""
LARGEST_SEED = 2**32 - 1
DEFAULTS = Limits()


class NewSession(BaseModel):
    """What is to be played."""

    model_config = ConfigDict(extra="forbid", strict=True)

    environment: str
    seed: int = Field(default=0, ge=0, le=LARGEST_SEED)
    issue: str | None = None
    """Key of an issue; None draws one, as the Gymnasium environment does with this seed."""


class Step(BaseModel):
    """One step of a session."""

    model_config = ConfigDict(extra="forbid", strict=True)

    action: str


@dataclass(slots=True)
class _Session:
    id: str
    machine: Machine
    state: State
    best: float
    steps: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def is_over(self) -> bool:
        return self.state.is_ended or len(self.steps) >= self.machine.workflow.max_steps

    def use(self, action: str) -> None:
        transition = self.machine.apply(self.state, action)
        self.state = transition.state
        self.steps.append(
            {
                "action": action,
                "is_valid": transition.is_valid,
                "reason": transition.reason,
                "reward": transition.reward,
                "status": transition.state.status,
            }
        )

    def show(self) -> dict[str, Any]:
        workflow, state = self.machine.workflow, self.state
        reasons = {tool.name: self.machine.why_not(state, tool.name) for tool in workflow.tools}
        return {
            "id": self.id,
            "environment": workflow.id,
            "task": workflow.task.format(target=self.machine.issue.target),
            "rules": workflow.rules,
            "issue": self.machine.issue.to_json(),
            "tools": [
                {"name": tool.name, "does": tool.does, "is_possible": not reasons[tool.name] and not self.is_over}
                | {"reason": reasons[tool.name] or ("the step limit is reached" if self.is_over else "")}
                for tool in workflow.tools
            ],
            "state": {"status": state.status, "facts": sorted(state.facts), "executed": list(state.executed)},
            "steps": self.steps,
            "max_steps": workflow.max_steps,
            "return": sum(step["reward"] for step in self.steps),
            "optimal_return": self.best,
            "plan": list(self.machine.plan),
            "num_progress": state.num_progress,
            "is_goal_reached": self.machine.is_resolved(state),
            "terminated": state.is_ended,
            "truncated": len(self.steps) >= workflow.max_steps,
            "verdict": self._verdict(),
        }

    def _verdict(self) -> dict[str, Any] | None:
        if not self.is_over:
            return None
        verdict = self.machine.judge(self.state)
        return {**asdict(verdict), "findings": list(verdict.findings), "is_ok": verdict.is_ok}


class _Sessions:
    """What is being played; lost when the process ends."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Session] = OrderedDict()
        self.lock = threading.Lock()

    def begin(self, issue: Issue) -> _Session:
        machine = Machine(issue)
        session = _Session(uuid.uuid4().hex, machine, machine.start(), find_optimum(issue).value)
        with self.lock:
            self._known[session.id] = session
            while len(self._known) > MOST_SESSIONS:
                self._known.popitem(last=False)
        return session

    def find(self, session_id: str) -> _Session:
        if session_id not in self._known:
            raise not_found("the session must be a running one, it is not known. Begin a new one")
        self._known.move_to_end(session_id)
        return self._known[session_id]


def jira_router(limits: Limits = DEFAULTS) -> APIRouter:
    """Return the routes of the console, with sessions of their own."""
    sessions = _Sessions()
    router = APIRouter(prefix="/jira", tags=["jira"], responses=documented(400, 404, 409, 413, 415, 422))

    @router.get("/environments")
    def list_environments() -> list[dict[str, Any]]:
        """List what can be played."""
        return [
            {
                "id": workflow.id,
                "task": workflow.task,
                "max_steps": workflow.max_steps,
                "issues": [issue.to_json() for issue in load_issues(workflow.name)],
            }
            for workflow in load_workflows().values()
        ]

    @router.post("/sessions", status_code=201, openapi_extra=described(NewSession))
    async def begin(request: Request) -> dict[str, Any]:
        """Begin an episode."""
        wanted = await read_body(request, NewSession, limits)
        return sessions.begin(_issue(_workflow(wanted.environment), wanted)).show()

    @router.get("/sessions/{session_id}")
    def show(session_id: str) -> dict[str, Any]:
        """Show an episode as it is now."""
        with sessions.lock:
            return sessions.find(session_id).show()

    @router.post("/sessions/{session_id}/step", openapi_extra=described(Step))
    async def step(session_id: str, request: Request) -> dict[str, Any]:
        """Use a tool; one that is not possible costs a penalty and changes nothing."""
        wanted = await read_body(request, Step, limits)
        with sessions.lock:
            session = sessions.find(session_id)
            names = session.machine.workflow.tool_names
            if wanted.action not in names:
                raise ServiceError(
                    422, "invalid", f"action must be one of {', '.join(names)}, got {wanted.action[:40]!r}", "action"
                )
            if session.is_over:
                raise ServiceError(409, "over", "the episode must be running, it is over. Begin a new one")
            session.use(wanted.action)
            return session.show()

    return router


def _workflow(name: str) -> Workflow:
    known = {workflow.id: workflow for workflow in load_workflows().values()}
    plain = name.removeprefix("skyrl_nat/")
    if plain not in known:
        message = f"environment must be one of {', '.join(known)}, got {name[:40]!r}. Choose one of those"
        raise ServiceError(422, "invalid", message, "environment")
    return known[plain]


def _issue(workflow: Workflow, wanted: NewSession) -> Issue:
    issues = load_issues(workflow.name)
    if wanted.issue is None:
        # Gymnasium's own stream of a seed, so that the same seed plays the same issue here and there.
        stream = np.random.Generator(np.random.PCG64(np.random.SeedSequence(wanted.seed)))
        return issues[int(stream.integers(len(issues)))]
    found = [issue for issue in issues if issue.key == wanted.issue]
    if not found:
        keys = ", ".join(issue.key for issue in issues)
        raise ServiceError(422, "invalid", f"issue must be one of {keys}, got {wanted.issue[:40]!r}", "issue")
    return found[0]

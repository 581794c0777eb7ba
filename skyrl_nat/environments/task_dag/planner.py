"""A planner for applications: the trained policy behind a flag, a baseline behind it whatever happens.

    planner = TaskPlanner(baseline=plan_by_rules, trained=PolicyPlanner(ask_model))
    planned = planner.plan(request, request_id="4711")      # .nodes, .outcome, .reason

`TASK_DAG_USE_TRAINED_POLICY=1` switches the policy on, `percent` says for how many requests. Imports no torch: the
model is whatever answers a list of messages with text.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from skyrl_nat.environments.task_dag.env import MAX_PLAN_NODES, TaskDagEnv
from skyrl_nat.environments.task_dag.graph import Node
from skyrl_nat.environments.task_dag.payload import Request, parse_nodes
from skyrl_nat.environments.task_dag.plan import check_plan
from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.feature_flag import FlagCounts, FlagOutcome, is_drawn, read_flag
from skyrl_nat.types import Message

FLAG = "TASK_DAG_USE_TRAINED_POLICY"

PlanRequest = Callable[[Request], Sequence[Node]]
"""Makes a plan; raises where it cannot."""


class AskModel(Protocol):
    """A model, wherever it runs."""

    def __call__(self, messages: list[Message]) -> str:
        """Return the model's next message."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan without faults, and where it came from."""

    nodes: tuple[Node, ...]
    outcome: FlagOutcome
    reason: str = ""
    """Why the trained policy's plan was not taken; empty where it was, or was not asked for."""
    seconds: float = 0.0


Try = tuple[FlagOutcome, tuple[Node, ...] | None, str]
"""What came of asking the trained policy: the outcome, its plan or None for the baseline's, and the reason."""


class PolicyPlanner:
    """Plays the family's own protocol with a model."""

    def __init__(self, ask: AskModel, *, max_turns: int = 8) -> None:
        """Keep the model.

        Args:
            ask: Is called once a turn.
            max_turns: Turns that it was trained with.
        """
        self._ask = ask
        self._max_turns = max_turns

    def __call__(self, request: Request) -> list[Node]:
        """Return the plan.

        Raises:
            DataError: An answer broke the protocol, the plan had a fault, or it was not finished.
        """
        payload = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(request).items()}
        environment = TaskDagEnv({}, {"payload": payload, "max_turns": self._max_turns})
        messages, _ = environment.init([])
        while True:
            text = self._ask(list(messages))
            output = environment.step(text)
            if output["done"]:
                break
            observations = [Message(role=item["role"], content=item["content"]) for item in output["observations"]]
            messages += [Message(role="assistant", content=text), *observations]
        artifact = environment.artifact()
        if artifact["failure"] or not artifact["is_stopped"]:
            reason = artifact["failure"] or f"no stop within {self._max_turns} turns"
            raise DataError(f"a model must finish a plan without faults, got: {reason}. Take another plan")
        return list(parse_nodes(artifact["nodes"]))


class TaskPlanner:
    """Chooses who plans, falls back at once, and counts. Thread-safe."""

    def __init__(
        self,
        *,
        baseline: PlanRequest,
        trained: PlanRequest | None = None,
        is_enabled: bool | None = None,
        percent: float = 100.0,
        timeout_s: float = 30.0,
        max_concurrent: int = 16,
    ) -> None:
        """Keep both planners.

        Args:
            baseline: Answers whenever the trained one may not or cannot.
            trained: For instance a `PolicyPlanner`; None where there is none.
            is_enabled: Whether the trained one may be asked; None reads the environment variable `FLAG` anew for
                every request, so that it can be switched off in a running process.
            percent: Share of the requests that it is asked for, in [0, 100]; the same requests every time, and with
                a larger share these and more.
            timeout_s: Seconds that it may take; afterwards its thread is left behind and its plan is not taken.
            max_concurrent: Threads that ask it at once at most, those left behind included.

        Raises:
            ConfigError: A number is out of range, or the environment variable is neither on nor off.
        """
        if not 0.0 <= percent <= 100.0 or not timeout_s > 0 or max_concurrent < 1:
            raise ConfigError(
                f"percent must be in 0..100, timeout_s above 0 and max_concurrent >= 1, got {percent}, {timeout_s} "
                f"and {max_concurrent}. Use 100, 30 and 16"
            )
        if is_enabled is None:
            read_flag(os.environ, FLAG)
        self._slots = threading.BoundedSemaphore(max_concurrent)
        self._baseline, self._trained = baseline, trained
        self._is_enabled, self._percent, self._timeout_s = is_enabled, percent, timeout_s
        self._counts = FlagCounts()

    def plan(self, request: Request, *, request_id: str) -> Planned:
        """Return a plan.

        Args:
            request: What is wanted.
            request_id: Decides whether the trained policy is asked.

        Raises:
            Exception: What the baseline raises, and DataError where its plan has a fault.
        """
        started = time.monotonic()
        outcome, nodes, reason = self._try_trained(request, request_id)
        try:
            if nodes is None:
                nodes = tuple(self._baseline(request))
                if fault := _fault_of(nodes):
                    raise DataError(f"the baseline must make plans without faults, got: {fault}. Mend it")
        except Exception:
            self._counts.add(FlagOutcome.failed)
            raise
        self._counts.add(outcome)
        return Planned(nodes=nodes, outcome=outcome, reason=reason, seconds=time.monotonic() - started)

    def counts(self) -> dict[str, int]:
        """Return how often each outcome came about since the start, those that never did included."""
        return self._counts.to_dict()

    def _try_trained(self, request: Request, request_id: str) -> Try:
        """Ask the trained policy where it is to be asked."""
        is_on, reason = bool(self._is_enabled), ""
        if self._is_enabled is None:
            try:
                is_on = read_flag(os.environ, FLAG)
            except ConfigError as error:  # changed while we run: no request may be lost for it
                reason = str(error)
        if self._trained is None or not is_on:
            return FlagOutcome.baseline_flag_off, None, reason
        if not is_drawn(request_id, self._percent):
            return FlagOutcome.baseline_not_drawn, None, ""
        return self._ask_trained(self._trained, request)

    def _ask_trained(self, trained: PlanRequest, request: Request) -> Try:
        """Ask within the deadline; whatever goes wrong becomes an outcome."""
        if not self._slots.acquire(blocking=False):
            return FlagOutcome.fallback_busy, None, "too many requests are with the trained policy"
        plans: list[tuple[Node, ...]] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                plans.append(tuple(trained(request)))
            except BaseException as error:  # noqa: BLE001 - the border to a model: what is caught becomes an outcome
                errors.append(error)
            finally:
                self._slots.release()

        thread = threading.Thread(target=work, name="trained planner", daemon=True)
        thread.start()
        thread.join(self._timeout_s)
        if errors:
            kind = FlagOutcome.fallback_invalid if isinstance(errors[0], DataError) else FlagOutcome.fallback_error
            return kind, None, f"{type(errors[0]).__name__}: {errors[0]}"
        if not plans:
            return FlagOutcome.fallback_timeout, None, f"no plan within {self._timeout_s:g} s"
        try:
            fault = _fault_of(plans[0])
        except (AttributeError, TypeError, ValueError) as error:
            fault = f"{type(error).__name__}: {error}"
        if fault:
            return FlagOutcome.fallback_invalid, None, fault
        return FlagOutcome.trained, plans[0], ""


def _fault_of(nodes: Sequence[Node]) -> str:
    if not nodes:
        return "a plan must have tasks, got none"
    return "; ".join(problem.message for problem in check_plan(nodes, max_nodes=MAX_PLAN_NODES))

"""A run of an agent while it is recorded, and the steps that are reported to it."""

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from skyrl_nat.data.traces import plain
from skyrl_nat.data.traces.plain import NO_TOKENS, Tokens
from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome, TraceStep

_logger = logging.getLogger(__name__)


class RecordedRun:
    """One execution in the making."""

    def __init__(self, agent: Any, method: str, request: str, is_alone: bool) -> None:
        self.agent = agent
        self.method = method
        self.is_alone = is_alone
        self.tokens_before = plain.tokens(agent)
        self.answer: Any = None
        self.parts: list[Any] = []
        self.error: BaseException | None = None
        self.is_stopped = False
        self.steps = [TraceStep(kind=StepKind.message, role="user", text=request)]
        self.started_at = datetime.now(UTC)
        self._began = time.perf_counter()

    def finish(self, agent_name: str) -> Trace:
        """Return the trace."""
        seconds = time.perf_counter() - self._began
        num_prompt, num_completion = self._tokens()
        answer = "".join(map(plain.text, self.parts)) if self.parts else plain.text(self.answer)
        said = TraceStep(
            kind=StepKind.message, text=answer, num_prompt_tokens=num_prompt, num_completion_tokens=num_completion
        )
        metadata: dict[str, Any] = {"method": self.method}
        if self.error is not None:
            metadata |= {"error": f"{type(self.error).__name__}: {self.error}"}
        if self.is_stopped:
            metadata |= {"stopped": "the caller took no more of the stream"}
        is_silent = self.error is not None and not answer
        return Trace(
            trace_id=f"hook-{uuid.uuid4().hex}",
            source="hook",
            request=self.steps[0].text,
            steps=tuple(self.steps) if is_silent else (*self.steps, said),
            outcome=TraceOutcome.unknown if self.error is None else TraceOutcome.error,
            started_at=self.started_at.isoformat(),
            seconds=seconds,
            agent=agent_name or type(self.agent).__name__,
            model=plain.model_name(self.agent),
            metadata=metadata,
        )

    def _tokens(self) -> Tokens:
        """What the answer reports, else by how much the agent's count grew while nothing else ran on it."""
        reported = plain.tokens(self.parts[-1] if self.parts else self.answer)
        if reported != NO_TOKENS or not self.is_alone:
            return reported
        (prompt, completion), (prompt_before, completion_before) = plain.tokens(self.agent), self.tokens_before
        return _difference(prompt, prompt_before), _difference(completion, completion_before)


_current: ContextVar[RecordedRun | None] = ContextVar("skyrl_nat_recorded_run", default=None)


def current_run() -> RecordedRun | None:
    """Return the run that is being recorded here."""
    return _current.get()


def step(
    text: Any = "",
    *,
    tool: str = "",
    arguments: dict[str, Any] | None = None,
    kind: StepKind | None = None,
    is_error: bool = False,
    seconds: float | None = None,
    tokens: Tokens = NO_TOKENS,
) -> bool:
    """Report a step of the run that is being recorded; outside of one it does nothing and returns False.

    Tasks and `asyncio.to_thread` know the run they belong to; a bare thread must be started in
    `contextvars.copy_context()`.

    Args:
        text: What was said, thought, or answered by the tool.
        tool: Name of the tool, where one was called.
        arguments: What it was called with.
        kind: None is a tool's call where `tool` is named, else a message.
        is_error: Whether the tool failed.
        seconds: How long it took.
        tokens: Of the prompt and of the completion, where a model was asked.
    """
    run = _current.get()
    if run is None:
        return False
    kind = kind or (StepKind.tool if tool else StepKind.message)
    try:
        made = TraceStep(
            kind=kind,
            role="tool" if kind is StepKind.tool else "assistant",
            text=plain.text(text),
            tool=tool,
            arguments=plain.json_value(arguments or {}),
            is_error=is_error,
            seconds=seconds,
            num_prompt_tokens=tokens[0],
            num_completion_tokens=tokens[1],
        )
    except Exception as error:  # noqa: BLE001 - whatever a value raises when it is read must not reach the tool
        _logger.warning("A step of %s could not be recorded: %r", tool or kind, error)
        return False
    run.steps.append(made)
    return True


@contextmanager
def inside(run: RecordedRun) -> Iterator[None]:
    """Be inside a run: what reports a step belongs to it."""
    token = _current.set(run)
    try:
        yield
    finally:
        with suppress(ValueError):  # a coroutine may be closed from another context, which does not know the token
            _current.reset(token)


def _difference(after: int | None, before: int | None) -> int | None:
    """By how much a count grew; one that began again counts whole."""
    if after is None or before is None:
        return after
    return after - before if after >= before else after

"""Steps in the making: answers of tools find their calls, tokens find the step they made."""

import json
from dataclasses import replace
from typing import Any

from skyrl_nat.data.traces.record import StepKind, TraceStep


class StepBuilder:
    """Builds the steps of one trace.

    The dialogue is whole: what the user asked is the first step of role `user`. A call and its answer are one step, at
    the place of the call. The tokens of an answer of the model lie on the first step that it made.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._steps: list[TraceStep] = []
        self._calls: dict[str, int] = {}
        self._tokens: tuple[int | None, int | None] | None = None

    def charge(self, num_prompt_tokens: int | None, num_completion_tokens: int | None) -> None:
        """Say what the model's answer cost whose steps come next."""
        self._settle()
        self._tokens = (num_prompt_tokens, num_completion_tokens)

    def message(self, role: str, text: str, seconds: float | None = None) -> None:
        """Somebody said something."""
        self._add(TraceStep(kind=StepKind.message, role=role, text=text, seconds=seconds))

    def reasoning(self, text: str) -> None:
        """The model thought aloud."""
        self._add(TraceStep(kind=StepKind.reasoning, text=text))

    def call(self, call_id: str, tool: str, arguments: dict[str, Any]) -> None:
        """A tool was called."""
        self._calls[call_id] = len(self._steps)
        self._add(TraceStep(kind=StepKind.tool, role="tool", tool=tool, arguments=arguments))

    def answer(self, call_id: str, text: str, *, is_error: bool = False, seconds: float | None = None) -> bool:
        """A tool answered; False where nobody had called it."""
        index = self._calls.pop(call_id, None)
        if index is None:
            return False
        self._steps[index] = replace(self._steps[index], text=text, is_error=is_error, seconds=seconds)
        return True

    @property
    def num_unanswered(self) -> int:
        """Calls without an answer so far."""
        return len(self._calls)

    def fail_unanswered(self) -> None:
        """Say of the calls without an answer that they failed."""
        for index in self._calls.values():
            self._steps[index] = replace(self._steps[index], is_error=True)

    def finish(self) -> tuple[TraceStep, ...]:
        """Return the steps."""
        self._settle()
        return tuple(self._steps)

    def _add(self, step: TraceStep) -> None:
        is_of_model = step.role == "assistant" or step.kind is StepKind.tool
        if not is_of_model:
            self._settle()
        elif self._tokens is not None:
            num_prompt, num_completion = self._tokens
            step = replace(step, num_prompt_tokens=num_prompt, num_completion_tokens=num_completion)
            self._tokens = None
        self._steps.append(step)

    def _settle(self) -> None:
        """Keep the tokens of an answer that made no step: an empty message."""
        if self._tokens not in (None, (None, None)):
            self.message("assistant", "")
        self._tokens = None


def arguments_of(value: Any) -> dict[str, Any]:
    """Return a call's arguments; what is no JSON object is kept under `unparsed`."""
    if isinstance(value, dict):
        return value
    if value is None or value == "":
        return {}
    try:
        parsed = json.loads(value)
    except (TypeError, ValueError, RecursionError):
        return {"unparsed": value}
    return parsed if isinstance(parsed, dict) else {"unparsed": value}

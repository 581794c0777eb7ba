"""What the planner has been asked, what came back and what it cost: a file that only grows, and outlives a kill.

Every call is two lines of JSON, each on disk before the planner goes on: `sent` before the request leaves, `done` after
the answer came. A `sent` without `done` is a call that was under way when the process died; it is charged in full.
"""

import fcntl
import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from skyrl_nat.config.planner import PlannerConfig
from skyrl_nat.data.planner.backends import Answer
from skyrl_nat.data.planner.refusals import Billed
from skyrl_nat.errors import DataError, StoppedError
from skyrl_nat.json_lines import append_lines, encode_line, mend_lines, open_lines

FILE_NAME = "planner_ledger.jsonl"
ANSWERED, LOST, ABANDONED = "answer", "lost", "abandoned"
"""Results of a call besides the kinds of refusals: before it came back the process died, or was ended."""


@dataclass(slots=True, kw_only=True)
class Totals:
    """Sums over a ledger, calls of earlier processes included."""

    calls: int = 0
    """Also those under way."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Tokens as the service counted them."""
    cost: float = 0.0
    """Of those tokens."""
    estimated_cost: float = 0.0
    """Of calls for which the service gave no count."""
    results: Counter[str] = field(default_factory=Counter[str])
    """Result -> calls."""


class Ledger:
    """The ledger of one output folder; one process at a time may hold it."""

    def __init__(self, folder: Path, config: PlannerConfig) -> None:
        """Open the ledger of a folder, or begin one.

        Args:
            folder: Made if it is not there.
            config: Prices and limits.

        Raises:
            DataError: Another process holds it, or a line before the last is broken.
        """
        self.totals = Totals()
        self._config = config
        self._answers: dict[str, Answer] = {}
        self._open: dict[int, tuple[str, int, int]] = {}
        self._next_call = 0
        self.path = folder / FILE_NAME
        self._file = open_lines(self.path)
        try:
            self._lock()
            self._restore()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Let others hold the ledger."""
        self._file.close()

    @property
    def spent(self) -> float:
        """What all finished calls cost."""
        return self.totals.cost + self.totals.estimated_cost

    @property
    def at_stake(self) -> float:
        """What the calls under way cost at most."""
        return sum(self._config.cost(prompt, completion) for _, prompt, completion in self._open.values())

    def answer(self, key: str) -> Answer | None:
        """Return the answer that was already paid for."""
        return self._answers.get(key)

    def open_call(self, key: str, prompt_tokens: int, max_tokens: int) -> int:
        """Note that a call is about to be made and return its number.

        Args:
            key: Hash of the request.
            prompt_tokens: Estimate that is rather too high.
            max_tokens: Limit of the answer.

        Raises:
            StoppedError: The budget does not allow it.
        """
        limits, next_cost = self._config, self._config.cost(prompt_tokens, max_tokens)
        if self.totals.calls >= limits.max_calls:
            raise StoppedError(
                f"the planner must make at most planner.max_calls = {limits.max_calls} calls, all are used. "
                f"What was answered is in {self.path}; raise the limit to go on"
            )
        if self.spent + self.at_stake + next_cost > limits.max_cost:
            raise StoppedError(
                f"the planner must cost at most planner.max_cost = {limits.max_cost:g}; {self.spent:.4f} is spent, "
                f"calls under way may cost {self.at_stake:.4f} and the next one {next_cost:.4f}. "
                f"What was answered is in {self.path}; raise the limit to go on"
            )
        call = self._next_call
        self._append(
            {"event": "sent", "call": call, "key": key, "prompt_tokens": prompt_tokens, "max_tokens": max_tokens}
        )
        return call

    def close_call(self, call: int, answer: Answer) -> int:
        """Note an answer and return its tokens; those that the service did not count are estimated from the text."""
        _, prompt_tokens, _ = self._open[call]
        is_counted = answer.prompt_tokens is not None and answer.completion_tokens is not None
        return self._close(
            call,
            ANSWERED,
            prompt_tokens if answer.prompt_tokens is None else answer.prompt_tokens,
            estimate_tokens(answer.text) if answer.completion_tokens is None else answer.completion_tokens,
            is_counted=is_counted,
            answer=asdict(answer),
        )

    def fail_call(self, call: int, result: str, billed: Billed, message: str = "") -> int:
        """Note that a call brought nothing and return the tokens that it is taken to have used.

        Args:
            call: Its number.
            result: Kind of the refusal, `LOST` or `ABANDONED`.
            billed: What it is taken to cost.
            message: What the service said.
        """
        _, prompt_tokens, max_tokens = self._open[call]
        return self._close(
            call,
            result,
            0 if billed is Billed.nothing else prompt_tokens,
            max_tokens if billed is Billed.everything else 0,
            is_counted=False,
            message=message,
        )

    def _close(self, call: int, result: str, prompt: int, completion: int, *, is_counted: bool, **more: Any) -> int:
        line = {"event": "done", "call": call, "key": self._open[call][0], "result": result, "prompt_tokens": prompt}
        line |= {"completion_tokens": completion, "cost": self._config.cost(prompt, completion)}
        self._append({**line, "is_estimated": not is_counted, **more})
        return prompt + completion

    def _append(self, line: dict[str, Any]) -> None:
        append_lines(self._file, encode_line(line), is_synced=True)
        self._enter(line)

    def _enter(self, line: dict[str, Any]) -> None:
        """Add a line to the totals."""
        call, totals = line["call"], self.totals
        if line["event"] == "sent":
            self._open[call] = (line["key"], line["prompt_tokens"], line["max_tokens"])
            self._next_call = call + 1
            totals.calls += 1
            return
        del self._open[call]
        totals.results[line["result"]] += 1
        if line["is_estimated"]:
            totals.estimated_cost += line["cost"]
        else:
            totals.cost += line["cost"]
            totals.prompt_tokens += line["prompt_tokens"]
            totals.completion_tokens += line["completion_tokens"]
        if line["result"] == ANSWERED:
            self._answers[line["key"]] = Answer(**line["answer"])

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(
                f"one process at a time may hold {self.path}, another one does. Wait for it, or use another folder"
            ) from error

    def _restore(self) -> None:
        for number, line in enumerate(mend_lines(self._file, self.path), start=1):
            try:
                self._enter(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"every line of {self.path} but the last must be a record, line {number} is not: {error!r}. "
                    f"Mend it, or move the file away and pay again"
                ) from error
        for call in list(self._open):
            self.fail_call(call, LOST, Billed.everything)


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has, rather too many."""
    return -(-len(text.encode()) // 3)

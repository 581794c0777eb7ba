"""Who writes an agent: the trained policy for a share of the users, what is behind it whenever that may not or cannot.

Switch and percentage are in a file that is read for every request: a roll-out grows, and ends, without a restart.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Generic, TypeVar

from skyrl_nat.data.replacing import replacing
from skyrl_nat.deploy.log import say
from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.feature_flag import FlagCounts, FlagOutcome, is_drawn
from skyrl_nat.strict_json import parse_json

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagState:
    """What the file says."""

    is_on: bool = True
    percent: float = 100.0
    """Share of the users who get the trained policy; the same users every time."""

    def __post_init__(self) -> None:
        is_number = isinstance(self.percent, int | float) and not isinstance(self.percent, bool)
        if not isinstance(self.is_on, bool) or not is_number or not 0 <= self.percent <= 100:
            raise ConfigError(
                f"A flag must have is_on true or false and percent in 0..100, got {self.is_on!r} and {self.percent!r}. "
                "Write it with skyrl-nat deploy flag"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flagged(Generic[T]):
    """What came of asking the trained policy."""

    outcome: FlagOutcome
    value: T | None = None
    """None where the baseline must answer."""
    reason: str = ""


class FlagFile:
    """The file; without one the flag is on for everybody."""

    def __init__(self, path: Path) -> None:
        """Take its path."""
        self._path = path

    def write(self, state: FlagState) -> None:
        """Write a state, which holds from the next request on."""
        with replacing(self._path) as part:
            part.write_text(json.dumps(asdict(state)) + "\n", encoding="utf-8")

    def read(self) -> FlagState:
        """Return the state.

        Raises:
            ConfigError: The file holds something else.
        """
        if not self._path.exists():
            return FlagState()
        try:
            return FlagState(**parse_json(self._path.read_bytes()))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise ConfigError(f"{self._path} must hold a flag, but: {error}. Write it anew") from error


class TrainedSwitch:
    """Asks the trained policy for those who are drawn, falls back at once, and counts."""

    def __init__(self, file: FlagFile, *, timeout_s: float, max_concurrent: int) -> None:
        """Keep the limits.

        Args:
            file: Says who is asked.
            timeout_s: Seconds that the trained policy may take.
            max_concurrent: Requests with it at once; more are answered by the baseline.
        """
        self._file = file
        self._timeout_s = timeout_s
        self._free = max_concurrent
        self.counts = FlagCounts()

    async def ask(self, user: str, work: Callable[[], Awaitable[T]]) -> Flagged[T]:
        """Return what the trained policy made, or why the baseline must answer.

        Args:
            user: Decides, with the percentage, whether the policy is asked.
            work: Asks it; DataError says that its answer has a fault.
        """
        answer = await self._try(user, work)
        self.counts.add(answer.outcome)
        if answer.outcome is not FlagOutcome.trained:
            say("baseline answers", outcome=str(answer.outcome), reason=answer.reason)
        return answer

    async def _try(self, user: str, work: Callable[[], Awaitable[T]]) -> Flagged[T]:
        try:
            state = self._file.read()
        except ConfigError as error:  # changed while we run: no request may be lost for it
            return Flagged(outcome=FlagOutcome.baseline_flag_off, reason=str(error))
        if not state.is_on:
            return Flagged(outcome=FlagOutcome.baseline_flag_off)
        if not is_drawn(user, state.percent):
            return Flagged(outcome=FlagOutcome.baseline_not_drawn)
        if self._free < 1:
            return Flagged(outcome=FlagOutcome.fallback_busy, reason="too many requests are with the trained policy")
        self._free -= 1
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                return Flagged(outcome=FlagOutcome.trained, value=await work())
        except DataError as error:
            return Flagged(outcome=FlagOutcome.fallback_invalid, reason=str(error))
        except TimeoutError as error:
            if limit.expired():
                late = f"no answer within {self._timeout_s:g} s"
                return Flagged(outcome=FlagOutcome.fallback_timeout, reason=late)
            return Flagged(outcome=FlagOutcome.fallback_error, reason=f"TimeoutError: {error}")
        except Exception as error:  # noqa: BLE001 - the border to a model: what is caught becomes an outcome
            return Flagged(outcome=FlagOutcome.fallback_error, reason=f"{type(error).__name__}: {error}"[:500])
        finally:
            self._free += 1

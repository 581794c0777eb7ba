"""Who is asked: the trained policy or the baseline behind it. A switch, a percentage by a stable hash, and counts."""

import threading
import zlib
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from skyrl_nat.errors import ConfigError

_ON, _OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")
_HUNDREDTHS = 10_000


class FlagOutcome(StrEnum):
    """How an answer came about, or that none did."""

    trained = "trained"
    baseline_flag_off = "baseline_flag_off"
    baseline_not_drawn = "baseline_not_drawn"
    """The request is not among the percentage."""
    fallback_error = "fallback_error"
    fallback_timeout = "fallback_timeout"
    fallback_busy = "fallback_busy"
    """As many requests as may be are with the trained policy already, or hang there."""
    fallback_invalid = "fallback_invalid"
    """The trained policy's answer had a fault."""
    failed = "failed"
    """The baseline failed, too; its error was raised."""


class FlagCounts:
    """How often each outcome came about. Thread-safe."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._counts: Counter[FlagOutcome] = Counter()

    def add(self, outcome: FlagOutcome) -> None:
        """Count one."""
        with self._lock:
            self._counts[outcome] += 1

    def to_dict(self) -> dict[str, int]:
        """Return every outcome's count since the start, those that never came about included."""
        with self._lock:
            return {outcome.value: self._counts[outcome] for outcome in FlagOutcome}


def read_flag(variables: Mapping[str, str], name: str) -> bool:
    """Return whether an environment variable switches the trained policy on; unset means off.

    Raises:
        ConfigError: Its value says neither.
    """
    value = variables.get(name, "").strip().lower()
    if value not in (*_ON, *_OFF):
        raise ConfigError(
            f"{name} must be one of {', '.join(_ON)} or {', '.join(_OFF[1:])}, got {value!r}. Set it to 1"
        )
    return value in _ON


def is_drawn(name: str, percent: float) -> bool:
    """Return whether a request or a user is among a percentage: a function of the name alone, the same everywhere.

    With a larger percentage these and more are.
    """
    return zlib.crc32(name.encode("utf-8", "replace")) % _HUNDREDTHS < percent * _HUNDREDTHS / 100

"""What an engine is allowed to do next: one place that refuses wrong orders of calls."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from skyrl_nat.engines.busy_clock import BusyClock
from skyrl_nat.errors import EngineError
from skyrl_nat.monitoring.usage import Activity


class Memory(StrEnum):
    """Which device memory an engine holds."""

    ALL = "weights and KV cache"
    WEIGHTS = "weights only"
    NONE = "none"


class Lifecycle:
    """An engine's state. Every refusal says what was found and what to do."""

    def __init__(self) -> None:
        self.is_started = False
        self.clock = BusyClock()
        self.is_updating = False
        self.memory = Memory.ALL
        self.fault = ""
        """Why the weights in memory are not those of a version; empty if they are."""
        self.end = ""
        """Why the engine answers no more; empty while it does."""

    @property
    def is_paused(self) -> bool:
        """Whether requests stand still; the clock, too, must know."""
        return self.clock.is_paused

    @is_paused.setter
    def is_paused(self, value: bool) -> None:
        self.clock.is_paused = value

    def require_alive(self, call: str) -> None:
        """Refuse any call before `start` and after the end."""
        self._require(call, self.is_started, "be started", "not started", "Call start() first.")
        self._require(call, not self.end, "be running", self.end, "Start a new engine.")

    def require_generate(self) -> None:
        """Refuse a request whose answer could come from weights that nobody can name."""
        self.require_alive("generate")
        self._require_served("generate")

    def require_resume(self) -> None:
        """Refuse to go on with weights that nobody can name."""
        self.require_alive("resume")
        self._require("resume", not self.is_updating, "have ended its update", "one running", "Await it.")
        self._require_served("resume")

    def require_sleep(self) -> None:
        """Refuse to take memory from requests that are being sampled."""
        self.require_alive("sleep")
        self._require("sleep", self.is_paused, "be paused", "it sampling", "Call pause() first.")

    def require_wake(self, tags: list[str]) -> None:
        """Refuse to bring back the KV cache before there are weights that can be named."""
        self.require_alive("wake")
        is_early = "kv_cache" in tags and bool(self.fault)
        self._require("wake", not is_early, "have its weights before its KV cache", self.fault, "Push weights first.")

    @contextmanager
    def update(self) -> Iterator[None]:
        """Guard a weight update: a failure inside leaves the engine refusing until one succeeds."""
        self.require_alive("update_weights")
        self._require("update_weights", self.is_paused, "be paused", "it sampling", "Call pause() first.")
        self._require(
            "update_weights",
            self.memory is not Memory.NONE,
            "hold memory for weights",
            "it asleep",
            "Call wake(['weights']) first.",
        )
        self._require(
            "update_weights",
            not self.is_updating,
            "have ended its update",
            "one running",
            "Await it.",
        )
        self.is_updating = True
        try:
            with self.clock.during(Activity.PUSH):
                yield
        except BaseException as error:
            self.fault = f"the last weight update failed: {type(error).__name__}"
            raise
        finally:
            self.is_updating = False
        self.fault = ""

    def _require_served(self, call: str) -> None:
        self._require(
            call,
            not self.fault,
            "hold the weights of one version",
            self.fault,
            "Push weights with success, or restart the engine.",
        )
        self._require(
            call,
            self.memory is Memory.ALL,
            "hold memory for weights and KV cache",
            self.memory,
            "Call wake(['weights']), push, then wake(['kv_cache']).",
        )

    def _require(self, call: str, is_ok: bool, must: str, found: str, fix: str) -> None:
        if not is_ok:
            raise EngineError(f"For {call} an engine must {must}, found {found}. {fix}")

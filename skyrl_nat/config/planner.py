"""What a planner is: which service, how fast, how often and for how much money."""

import os
import re
from dataclasses import dataclass
from enum import StrEnum

from skyrl_nat.config.checks import coerce_enums, require, require_finite, require_not_negative, require_positive
from skyrl_nat.errors import ConfigError


class Backend(StrEnum):
    """Which protocol the service speaks."""

    gemini = "gemini"
    """Gemini through `google-genai`."""
    openai = "openai"
    """Any server that has OpenAI's `/chat/completions`, vLLM's included."""


@dataclass(kw_only=True, slots=True)
class PlannerConfig:
    """Section `planner`."""

    backend: Backend = Backend.gemini
    """Which protocol the service speaks."""
    model: str = "gemini-2.5-flash"
    """Name of the model as the service knows it."""
    base_url: str = ""
    """Empty means Google's own for `gemini`; `openai` needs one, `/v1` included."""
    api_key_env: str = "GEMINI_API_KEY"
    """Name of the environment variable that holds the key; empty sends none (only `openai`)."""
    timeout_s: float = 120.0
    """Seconds for one call, from the first byte sent to the last byte received."""
    requests_per_minute: int = 10
    """Calls a minute at most, of all workers together."""
    tokens_per_minute: int = 250_000
    """Prompt and answer together."""
    max_tries: int = 6
    """Calls for one request that the server refuses or does not answer."""
    max_repairs: int = 2
    """Further requests after an answer that was cut or breaks the schema."""
    max_failures_in_a_row: int = 10
    """Requests that fail after `max_tries`, one after the other, before the run stops."""
    max_wait_s: float = 600.0
    """A server that wants a longer delay stops the run."""
    max_tokens: int = 8192
    """Tokens of an answer; doubled after a cut one."""
    max_tokens_ceiling: int = 65_536
    """Tokens of an answer up to which doubling goes; at least `max_tokens`."""
    temperature: float = 1.0
    """Sampling temperature of the service; in [0, 2]."""
    max_calls: int = 1000
    """Calls that this folder's ledger may hold in all, failed ones included."""
    max_cost: float = 5.0
    """What this folder's ledger may come to, in the unit of the prices; kept even if every call in flight is full."""
    price_per_million_prompt: float = 0.30
    """Price of a million tokens of prompts, in the unit of `max_cost`."""
    price_per_million_completion: float = 2.50
    """The same of answers."""
    concurrency: int = 4
    """Calls in flight at most."""

    def __post_init__(self) -> None:
        coerce_enums(self)
        require_finite(self, "planner")
        require_positive(
            self,
            "planner",
            *("timeout_s", "requests_per_minute", "tokens_per_minute", "max_tries", "max_failures_in_a_row"),
            *("max_wait_s", "max_tokens", "max_calls", "max_cost", "concurrency"),
        )
        require_not_negative(self, "planner", "max_repairs", "price_per_million_prompt", "price_per_million_completion")
        self._check_service()
        require(
            self.max_tokens <= self.max_tokens_ceiling,
            "planner.max_tokens",
            f"be at most planner.max_tokens_ceiling = {self.max_tokens_ceiling}",
            self.max_tokens,
            "Lower it or raise the ceiling.",
        )
        require(
            0 <= self.temperature <= 2,
            "planner.temperature",
            "lie in [0, 2]",
            self.temperature,
            "Use 0, which is the steadiest.",
        )

    def _check_service(self) -> None:
        is_openai = self.backend is Backend.openai
        require(
            bool(self.model),
            "planner.model",
            "name a model",
            self.model,
            "Leave it out for the default, gemini-2.5-flash.",
        )
        require(
            bool(re.match(r"https?://[^/@\s]+(/[^@\s]*)?$", self.base_url)) or not (self.base_url or is_openai),
            "planner.base_url",
            f"be an http(s) address without a password for {self.backend}",
            "an empty one" if not self.base_url else "another form",
            "For instance http://localhost:8000/v1.",
        )
        # The value is not shown: who pastes the key itself here must not find it in a log.
        require(
            bool(re.fullmatch(r"[A-Z_][A-Z0-9_]*", self.api_key_env)) or (is_openai and not self.api_key_env),
            "planner.api_key_env",
            "be the NAME of an environment variable, in capitals",
            f"{len(self.api_key_env)} characters that are none",
            "Export the key under such a name, and never write it into a configuration.",
        )

    def read_api_key(self) -> str:
        """Return the key from the environment, empty where none is wanted.

        Raises:
            ConfigError: The variable is not set.
        """
        key = os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""
        if self.api_key_env and not key:
            raise ConfigError(
                f"the environment variable {self.api_key_env} must hold the planner's API key, it is not set. "
                f"Export it, or name another one in planner.api_key_env"
            )
        return key

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return what so many tokens cost."""
        price = self.price_per_million_prompt * prompt_tokens + self.price_per_million_completion * completion_tokens
        return price / 1_000_000

"""A planner that cannot work is refused before anything is asked."""

from typing import Any

import pytest
from planner_server import KEY, KEY_NAME

from skyrl_nat.config.planner import Backend, PlannerConfig
from skyrl_nat.errors import ConfigError


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_NAME, KEY)


def test_the_defaults_ask_gemini():
    config = PlannerConfig()
    assert (config.backend, config.model, config.api_key_env) == (Backend.gemini, "gemini-2.5-flash", "GEMINI_API_KEY")
    assert config.cost(1_000_000, 2_000_000) == pytest.approx(0.3 + 5.0)


def test_the_key_comes_from_the_environment_without_blanks(monkeypatch: pytest.MonkeyPatch):
    config = PlannerConfig(api_key_env=KEY_NAME)
    assert config.read_api_key() == KEY
    monkeypatch.setenv(KEY_NAME, f" {KEY}\n")
    assert config.read_api_key() == KEY
    assert KEY not in repr(config)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"backend": "claude"}, "backend must be one of gemini, openai, got 'claude'"),
        ({"backend": "openai"}, "planner.base_url must be an http.* address .* for openai, got 'an empty one'"),
        ({"base_url": "localhost:8000"}, "planner.base_url must be an http"),
        ({"base_url": "https://user:secret@host/v1"}, "planner.base_url must be an http.*without a password"),
        ({"model": ""}, "planner.model must name a model"),
        ({"api_key_env": ""}, "planner.api_key_env must be the NAME"),
        ({"timeout_s": 0}, "planner.timeout_s must be > 0, got 0"),
        ({"timeout_s": float("nan")}, "planner.timeout_s must be a finite number"),
        ({"requests_per_minute": -1}, "planner.requests_per_minute must be > 0"),
        ({"tokens_per_minute": 0}, "planner.tokens_per_minute must be > 0"),
        ({"max_tries": 0}, "planner.max_tries must be > 0"),
        ({"max_repairs": -1}, "planner.max_repairs must be >= 0"),
        ({"max_calls": 0}, "planner.max_calls must be > 0"),
        ({"max_cost": 0.0}, "planner.max_cost must be > 0"),
        ({"price_per_million_prompt": -0.1}, "planner.price_per_million_prompt must be >= 0"),
        ({"concurrency": 0}, "planner.concurrency must be > 0"),
        ({"max_tokens": 99, "max_tokens_ceiling": 98}, "planner.max_tokens must be at most .*ceiling = 98, got 99"),
        ({"temperature": 2.5}, r"planner.temperature must lie in \[0, 2\]"),
    ],
)
def test_values_that_cannot_work_are_refused_in_a_sentence(how: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        PlannerConfig(**how)


@pytest.mark.parametrize("how", [{"api_key_env": "AIzaSyTheKeyItself"}, {"base_url": "https://u:AIzaSyTheKeyItself@h"}])
def test_a_key_in_the_wrong_place_is_refused_without_showing_it(how: dict[str, str]):
    with pytest.raises(ConfigError) as error:
        PlannerConfig(**how)  # pyright: ignore[reportArgumentType]
    assert "AIzaSy" not in str(error.value)

"""Overrides of the command line: one word, one value, in Hydra's grammar wherever they are taken."""

import shlex
from collections.abc import Sequence
from typing import Any, cast

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException

from skyrl_nat.config.checks import require
from skyrl_nat.errors import ConfigError

SWEEPS = (ValueType.SIMPLE_CHOICE_SWEEP, ValueType.CHOICE_SWEEP, ValueType.RANGE_SWEEP)
"""Kinds of values that can be counted."""


def parse_overrides(words: Sequence[str]) -> list[Override]:
    """Return what words of the command line set.

    Args:
        words: As the shell hands them over, for instance `trainer.steps=3`.

    Raises:
        ConfigError: One of them cannot be read, or names several values.
    """
    return [_parse(word) for word in words]


def parse_sweep(word: str) -> list[str]:
    """Return the overrides that a word with several values stands for: `a.b=1,2` gives `a.b=1` and `a.b=2`.

    Args:
        word: In Hydra's notation for sweeps: values after commas, `choice(...)` or `range(...)`.

    Raises:
        ConfigError: It cannot be read, or does not name two values or more, each of them once.
    """
    override = _read(word)
    if override.value_type not in SWEEPS:
        raise ConfigError(f"what is varied must be KEY=A,B with two values or more, got {word!r}. Name all of them")
    if getattr(override.value(), "shuffle", False):
        raise ConfigError(f"what is varied must have a fixed order, got {word!r}. Leave out shuffle")
    words = [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
    if len(set(words)) < max(2, len(words)):
        raise ConfigError(f"what is varied must name two values or more, each once, got {word!r}. Correct the list")
    return words


def text_override(key: str, value: str) -> str:
    """Return an override whose value is taken letter by letter."""
    parts = value.split('"')
    # A backslash is an ordinary letter, except before a quotation mark.
    escaped = '\\"'.join(part + "\\" * (len(part) - len(part.rstrip("\\"))) for part in parts)
    return f'{key}="{escaped}"'


def require_as_written(overrides: Sequence[Override], config: Any) -> None:
    """Refuse values that the config does not hold as they were written: 1e3 would become the text 1000.0, and 2 true.

    Args:
        overrides: From `parse_overrides`.
        config: Made from them.

    Raises:
        ConfigError: With the quoted form.
    """
    for override in overrides:
        written, found = override.value(), _value_at(config, override.key_or_group)
        text = (override.input_line or "").partition("=")[2]
        if isinstance(written, bool | int | float) and isinstance(found, str) and text.strip() != found:
            raise ConfigError(
                f"{override.key_or_group} must be text as it is written, got {text}, which is read as {found!r}. "
                f"Write {_quoted(override.key_or_group, text)}"
            )
        if isinstance(found, bool) and isinstance(written, int | float):
            require(
                written in (0, 1),
                override.key_or_group,
                "be true or false",
                written,
                f"Write {override.key_or_group}=true.",
            )


def _value_at(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = cast("dict[str, Any]", config).get(name) if isinstance(config, dict) else getattr(config, name, None)
    return config


def _parse(word: str) -> Override:
    override = _read(word)
    if override.is_sweep_override():
        key, _, value = word.partition("=")
        raise ConfigError(
            f"an override must be one value, got {word!r}, which names several and would be several runs. "
            f"Write {_quoted(key, value)} for text, {shlex.quote(f'{key}=[{value}]')} for a list"
        )
    return override


def _read(word: str) -> Override:
    key, is_pair, value = word.partition("=")
    if not is_pair and not word.startswith("~"):
        raise ConfigError(f"an override must be KEY=VALUE, got {word!r}. Put the value after an equals sign")
    try:
        return OverridesParser.create().parse_override(word)
    except HydraException as error:
        raise ConfigError(
            f"an override must be KEY=VALUE, got {word!r}, whose value has signs that mean something else. "
            f"Write {_quoted(key, value)}"
        ) from error


def _quoted(key: str, value: str) -> str:
    """Return `text_override` for a shell."""
    return shlex.quote(text_override(key, value))

"""The one way in which a configuration value is refused."""

import dataclasses
import math
from enum import StrEnum
from typing import Any, get_args

from skyrl_nat.errors import ConfigError

WORDS_FOR_NOTHING = ("none", "null", "nil", "~", "???")


def require(is_ok: bool, path: str, must: str, found: Any, fix: str) -> None:
    """Raise a `ConfigError` of the house's form unless `is_ok`.

    Args:
        is_ok: The condition that must hold.
        path: Config path of the value, for instance `algorithm.clip_high`.
        must: What must hold, continuing "must", for instance `be > 0`.
        found: The value found.
        fix: One sentence that says what to do.
    """
    if not is_ok:
        raise ConfigError(f"{path} must {must}, got {found!r}. {fix}")


def require_positive(section: Any, prefix: str, *names: str) -> None:
    """Refuse fields of a section that are not numbers above 0."""
    for name in names:
        value = getattr(section, name)
        if value is not None:
            require(value > 0, f"{prefix}.{name}", "be > 0", value, f"Set {prefix}.{name} to a positive number.")


def require_not_negative(section: Any, prefix: str, *names: str) -> None:
    """Refuse fields of a section that are below 0."""
    for name in names:
        value = getattr(section, name)
        if value is not None:
            require(value >= 0, f"{prefix}.{name}", "be >= 0", value, f"Set {prefix}.{name} to 0 or more.")


def require_multiple(path: str, found: int, of: int, of_path: str) -> None:
    """Refuse a number that is no multiple of another, with the two nearest that are."""
    below = found // of * of
    choice = f"{below} or {below + of}" if below else str(of)
    require(
        found % of == 0, path, f"be a multiple of {of_path} ({of})", found, f"Set it to {choice}, or change the other."
    )


def require_divisor(path: str, found: int, of: int, of_path: str) -> None:
    """Refuse a number that does not divide another, with the two nearest that do."""
    divisors = [number for number in range(1, of + 1) if of % number == 0]
    nearest = sorted(sorted(divisors, key=lambda number: abs(number - found))[:2])
    require(
        of % found == 0,
        path,
        f"divide {of_path} ({of})",
        found,
        f"Set it to {' or '.join(map(str, nearest))}, or change the other.",
    )


def refuse_words_for_nothing(section: Any, prefix: str = "") -> None:
    """Refuse text that stands for no value: only null does. Empty text is refused where null may stand.

    Args:
        section: A dataclass; the sections below it are looked through too.
        prefix: Config path of the section, with a dot at its end.
    """
    for field in dataclasses.fields(section):
        value, path = getattr(section, field.name), f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            refuse_words_for_nothing(value, f"{path}.")
        may_be_null = type(None) in get_args(field.type)
        for text in value if isinstance(value, list) else [value]:  # pyright: ignore[reportUnknownVariableType]
            if isinstance(text, str) and not isinstance(text, StrEnum):
                fix = f"Write {path}=null for none." if may_be_null else "Leave it out for its default."
                require(text.lower() not in WORDS_FOR_NOTHING, path, "be text with a meaning", text, fix)
                require(bool(text) or not may_be_null, path, "be null or not empty", text, fix)


def coerce_enums(section: Any) -> None:
    """Turn strings in enum fields of a section into members, so that comparisons by identity hold.

    Raises:
        ConfigError: A string names no member.
    """
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if isinstance(field.type, type) and issubclass(field.type, StrEnum) and not isinstance(value, field.type):
            choices = [str(member) for member in field.type]
            require(value in choices, field.name, f"be one of {', '.join(choices)}", value, "Pick one of them.")
            setattr(section, field.name, field.type(value))


def require_finite(section: Any, prefix: str) -> None:
    """Refuse NaN and infinity in every float field of a section."""
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if isinstance(value, float):
            require(
                math.isfinite(value),
                f"{prefix}.{field.name}",
                "be a finite number",
                value,
                "Write an ordinary number.",
            )

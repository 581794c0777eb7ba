"""The one way in which a configuration value is refused."""

import dataclasses
import math
from enum import StrEnum
from typing import Any

from skyrl_nat.errors import ConfigError


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

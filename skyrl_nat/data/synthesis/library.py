"""The library of tool families, and which of them are held out."""

import random
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

from skyrl_nat.data.synthesis import families
from skyrl_nat.data.synthesis.family import Family, ToolTemplate

VALIDATION_SHARE = 0.1
"""Of the families, at least."""
MIN_VALIDATION_FAMILIES = 4


def load_families() -> list[Family]:
    """Return all families, by name."""
    names = sorted(module.name for module in iter_modules(families.__path__))
    return [import_module(f"{families.__name__}.{name}").FAMILY for name in names]


def split_families(found: Sequence[Family], seed: int) -> dict[str, list[Family]]:
    """Return the families of `train` and of `validation`.

    Args:
        found: All families.
        seed: Chooses those that are held out.
    """
    count = max(MIN_VALIDATION_FAMILIES, round(VALIDATION_SHARE * len(found)))
    held_out = set(random.Random(f"split/{seed}").sample([family.name for family in found], count))
    return {
        "train": [family for family in found if family.name not in held_out],
        "validation": [family for family in found if family.name in held_out],
    }


def templates_of(found: Sequence[Family], level: int | None = None) -> list[tuple[Family, ToolTemplate]]:
    """Return the templates of families, of one level or of all."""
    return [(family, tool) for family in found for tool in family.tools if level in (None, tool.level)]

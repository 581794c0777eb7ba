"""The library of tool families, and what of it is held out: whole families, or variants of every template."""

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from enum import StrEnum
from importlib import import_module
from pkgutil import iter_modules

from skyrl_nat.data.synthesis import families
from skyrl_nat.data.synthesis.family import Family, ToolTemplate, ToolVariant
from skyrl_nat.errors import DataError

VALIDATION_SHARE = 0.1
"""Of the families, at least."""
MIN_VALIDATION_FAMILIES = 4
VARIANT_SHARE = 0.2
"""Of a template's variants that are held out: more than of the tasks, so that agents of several tools can be drawn."""
MIN_VARIANTS = 4
"""A template with fewer is wholly in the training set."""
NUM_DRAWN = 200
"""Draws that say which variants a template has."""
MAX_DRAWS = 2000
"""Draws until a variant of one side comes."""
OTHER_FAMILIES = "other_families"
"""Split of tasks whose families are in no other one."""


class HoldOut(StrEnum):
    """What the tasks of `validation` have that no training task has."""

    families = "families"
    """Their whole subject: a family of the library is in one split."""
    variants = "variants"
    """Their functions: every template is in both splits, with other constants and other words."""
    both = "both"
    """As `variants`, and a third split of families that are in neither of the two."""


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


def split_variants(found: Sequence[Family], seed: int) -> dict[str, list[Family]]:
    """Return for `train` and for `validation` the families with the variants that each may draw, no variant in both.

    Args:
        found: All families.
        seed: Chooses the variants that are held out.
    """
    sides: dict[str, list[Family]] = {"train": [], "validation": []}
    for family in found:
        held_out = [
            _held_out_names(tool, f"variants/{seed}/{family.name}/{number}") for number, tool in enumerate(family.tools)
        ]
        tools = {
            "train": [_outside(tool, names) for tool, names in zip(family.tools, held_out, strict=True)],
            "validation": [_inside(tool, names) for tool, names in zip(family.tools, held_out, strict=True) if names],
        }
        for split, side in sides.items():
            side += [replace(family, tools=tools[split])] if tools[split] else []
    return sides


def split_library(found: Sequence[Family], hold_out: HoldOut, seed: int) -> dict[str, list[Family]]:
    """Return the families of every split that a data set has."""
    by_family = split_families(found, seed)
    if hold_out is HoldOut.families:
        return by_family
    if hold_out is HoldOut.variants:
        return split_variants(found, seed)
    return split_variants(by_family["train"], seed) | {OTHER_FAMILIES: by_family["validation"]}


def templates_of(found: Sequence[Family], level: int | None = None) -> list[tuple[Family, ToolTemplate]]:
    """Return the templates of families, of one level or of all."""
    return [(family, tool) for family in found for tool in family.tools if level in (None, tool.level)]


def _held_out_names(tool: ToolTemplate, seed: str) -> frozenset[str]:
    """Return the names of a template's variants that are held out; none of one that has few."""
    names = sorted({tool.make(random.Random(f"{seed}/{number}")).name for number in range(NUM_DRAWN)})
    if len(names) < MIN_VARIANTS:
        return frozenset()
    return frozenset(random.Random(seed).sample(names, max(1, round(VARIANT_SHARE * len(names)))))


def _inside(tool: ToolTemplate, names: Collection[str]) -> ToolTemplate:
    return replace(tool, make=_drawing(tool, lambda variant: variant.name in names))


def _outside(tool: ToolTemplate, names: Collection[str]) -> ToolTemplate:
    return replace(tool, make=_drawing(tool, lambda variant: variant.name not in names))


def _drawing(tool: ToolTemplate, fits: Callable[[ToolVariant], bool]) -> Callable[[random.Random], ToolVariant]:
    def make(rng: random.Random) -> ToolVariant:
        for _ in range(MAX_DRAWS):
            variant = tool.make(rng)
            if fits(variant):
                return variant
        raise DataError(
            f"a template must give a variant of its side, it gave none in {MAX_DRAWS} draws. Change the seed"
        )

    return make

"""What of the library is held out: families, variants of every template, or both."""

import random

import pytest

from skyrl_nat.data.synthesis.family import Family, ToolTemplate, ToolVariant
from skyrl_nat.data.synthesis.library import (
    MIN_VARIANTS,
    OTHER_FAMILIES,
    HoldOut,
    load_families,
    split_families,
    split_library,
    split_variants,
)

FAMILIES = load_families()


def numbered(name: str, count: int) -> ToolTemplate:
    def make(rng: random.Random) -> ToolVariant:
        number = rng.randrange(count)
        return ToolVariant(
            name=f"{name}_{number}", args={"x": "int"}, returns="int", does=("a.", "b.", "c."),
            body=f"return x + {number}", draw={"x": {"kind": "int"}},
        )  # fmt: skip

    return ToolTemplate(level=1, make=make)


def drawn(families: list[Family], count: int = 60) -> dict[str, set[str]]:
    """Return family and place of each template -> names of its variants."""
    return {
        f"{family.name}/{tool.make(random.Random(0)).does[0]}/{place}": {
            tool.make(random.Random(number)).name for number in range(count)
        }
        for family in families
        for place, tool in enumerate(family.tools)
    }


def test_a_variant_is_on_one_side_and_nearly_every_template_on_both() -> None:
    sides = split_variants(FAMILIES, 3)
    names = {split: set.union(*drawn(found).values()) for split, found in sides.items()}
    assert not names["train"] & names["validation"]
    templates = {split: sum(len(family.tools) for family in found) for split, found in sides.items()}
    assert templates["train"] == sum(len(family.tools) for family in FAMILIES)
    assert 0.98 * templates["train"] < templates["validation"] <= templates["train"]
    assert 0.1 < len(names["validation"]) / len(names["train"] | names["validation"]) < 0.3


def test_the_seed_chooses_and_few_variants_stay_together() -> None:
    few = Family(name="few", subject="few", tools=(numbered("few", MIN_VARIANTS - 1), numbered("many", 40)))
    first, again, other = (split_variants([few], seed) for seed in (1, 1, 2))
    assert drawn(first["validation"]) == drawn(again["validation"]) != drawn(other["validation"])
    [held_out] = first["validation"]
    assert len(held_out.tools) == 1 and len(first["train"][0].tools) == 2
    assert len(drawn([held_out])["few/a./0"]) == 8
    assert split_variants([Family(name="f", subject="f", tools=(numbered("f", 2),))], 0)["validation"] == []


@pytest.mark.parametrize("hold_out", list(HoldOut))
def test_families_of_every_split(hold_out: HoldOut) -> None:
    names = {split: {family.name for family in found} for split, found in split_library(FAMILIES, hold_out, 3).items()}
    whole = {split: {family.name for family in found} for split, found in split_families(FAMILIES, 3).items()}
    everything = {family.name for family in FAMILIES}
    if hold_out is HoldOut.families:
        assert names == whole
    elif hold_out is HoldOut.variants:
        assert names["train"] == everything and list(names) == ["train", "validation"]
        assert len(names["validation"]) >= len(everything) - 1
    else:
        assert names[OTHER_FAMILIES] == whole["validation"]
        assert names["train"] == whole["train"] >= names["validation"]

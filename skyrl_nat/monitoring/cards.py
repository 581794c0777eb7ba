"""What GPUs can do at most, from NVIDIA's data sheets; a card that is not listed has no figures, never wrong ones."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Peaks of one GPU, per second."""

    bf16_flops: float
    """Dense, with accumulation in fp32."""
    memory_bytes: float
    """Between the card's memory and its cores."""
    link_bytes: float
    """NVLink in one direction, half of what data sheets say."""


CARDS = {
    "NVIDIA H100 80GB HBM3": Card(bf16_flops=989e12, memory_bytes=3.35e12, link_bytes=450e9),
    "NVIDIA H200": Card(bf16_flops=989e12, memory_bytes=4.8e12, link_bytes=450e9),
    "NVIDIA A100-SXM4-80GB": Card(bf16_flops=312e12, memory_bytes=2.039e12, link_bytes=300e9),
    "NVIDIA A100-SXM4-40GB": Card(bf16_flops=312e12, memory_bytes=1.555e12, link_bytes=300e9),
}
"""By the driver's name, whole: a slice of a card (MIG) has a longer one and other peaks."""


def find_card(names: Iterable[str]) -> Card | None:
    """Return the peaks of the one kind of card that all names are, None where there is none or several."""
    kinds = set(names)
    return CARDS.get(kinds.pop()) if len(kinds) == 1 else None

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
    link_bytes: float | None
    """NVLink in one direction, half of what data sheets say; None where a card may have none."""


_H100 = Card(bf16_flops=989e12, memory_bytes=3.35e12, link_bytes=450e9)
_A100 = Card(bf16_flops=312e12, memory_bytes=2.039e12, link_bytes=300e9)

CARDS = {
    "NVIDIA H100 80GB HBM3": _H100,
    "NVIDIA H100 SXM5 80GB": _H100,
    "NVIDIA H100 PCIe": Card(bf16_flops=756e12, memory_bytes=2.0e12, link_bytes=None),
    "NVIDIA H100 NVL": Card(bf16_flops=835e12, memory_bytes=3.9e12, link_bytes=None),
    "NVIDIA H200": Card(bf16_flops=989e12, memory_bytes=4.8e12, link_bytes=450e9),
    "NVIDIA A100-SXM4-80GB": _A100,
    "NVIDIA A100-SXM4-40GB": Card(bf16_flops=312e12, memory_bytes=1.555e12, link_bytes=300e9),
    "NVIDIA A100 80GB PCIe": Card(bf16_flops=312e12, memory_bytes=1.935e12, link_bytes=None),
    "NVIDIA A100-PCIE-40GB": Card(bf16_flops=312e12, memory_bytes=1.555e12, link_bytes=None),
    "NVIDIA L40S": Card(bf16_flops=362e12, memory_bytes=864e9, link_bytes=None),
}
"""By the driver's name, whole: a slice of a card (MIG) has a longer one and other peaks."""


def find_card(names: Iterable[str]) -> Card | None:
    """Return the peaks of the one kind of card that all names are, None where there is none or several."""
    kinds = set(names)
    return CARDS.get(kinds.pop()) if len(kinds) == 1 else None

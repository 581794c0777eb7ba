"""Adapters on the wire, apart from the weights that they belong to: names and shapes."""

from collections.abc import Mapping

from skyrl_nat.config.model import LoraConfig

ADAPTER_ID = 1
"""vLLM's number of the one adapter, which every push replaces."""
DOWN = ".lora_A.weight"
"""End of the name of A, `[rank, in]`."""
UP = ".lora_B.weight"
"""End of the name of alpha / rank * B, `[out, rank]`: the factor travels inside."""


def adapter_shapes(weights: Mapping[str, tuple[int, ...]], lora: LoraConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of every adapter matrix by name.

    Args:
        weights: Shapes of the model's weights by checkpoint name.
        lora: Section `model.lora`.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in weights.items():
        path, _, leaf = name.rpartition(".")
        if leaf == "weight" and any(f".{path}".endswith(f".{target}") for target in lora.targets):
            shapes[path + DOWN] = (lora.rank, shape[1])
            shapes[path + UP] = (shape[0], lora.rank)
    return shapes

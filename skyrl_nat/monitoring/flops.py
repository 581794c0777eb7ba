"""Floating-point operations that a model needs, counted from its config: what MFU is measured against.

A multiplication and an addition count as two. The backward pass costs twice the forward pass; what is recomputed in it
is not counted, so that MFU does not reward it. Embedding look-ups, norms and activations are left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

H100_BF16_FLOPS = 989e12
"""Dense, per second: NVIDIA's data sheet of the H100 SXM."""
_FORWARD_AND_BACKWARD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What decides a decoder's cost."""

    num_matmul_parameters: int
    """Weights that every token is multiplied with, the LM head included."""
    num_layers: int
    attention_width: int
    """Query heads x head size."""

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the shape of a Llama- or Qwen-like `config.json`."""
        hidden, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
        head_size = config.get("head_dim") or hidden // heads
        kv_width = (config.get("num_key_value_heads") or heads) * head_size
        width = heads * head_size
        per_layer = hidden * (2 * width + 2 * kv_width) + 3 * hidden * config["intermediate_size"]
        return cls(
            num_matmul_parameters=layers * per_layer + config["vocab_size"] * hidden,
            num_layers=layers,
            attention_width=width,
        )

    def forward_flops(self, lengths: Iterable[int]) -> float:
        """Return the cost of one forward pass over sequences of these lengths, with causal attention."""
        total = 0.0
        for length in lengths:
            # Scores and values: two products of length x length / 2 x width.
            attention = 2 * self.num_layers * self.attention_width * length * length
            total += 2 * self.num_matmul_parameters * length + attention
        return total

    def training_flops(self, lengths: Iterable[int]) -> float:
        """Return the cost of forward and backward pass."""
        return _FORWARD_AND_BACKWARD * self.forward_flops(lengths)


def mfu(flops: float, seconds: float, *, num_gpus: int, peak_flops: float = H100_BF16_FLOPS) -> float:
    """Return model FLOPs utilisation: the share of the GPUs' peak that useful work reached."""
    return flops / (seconds * num_gpus * peak_flops)

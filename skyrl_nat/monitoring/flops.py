"""Floating-point operations that a model needs, counted from its config: what MFU is measured against.

A multiplication and an addition count as two. The backward pass costs twice the forward pass; what is recomputed in it
is not counted, so that MFU does not reward it. Embedding look-ups, norms and activations are left out.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

_FORWARD_AND_BACKWARD = 3
DENSE_MODELS = ("llama", "qwen2", "qwen3")
"""`model_type` of configs whose layers are all alike: full attention, a gated MLP, no experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What decides a decoder's cost."""

    num_matmul_parameters: int
    """Weights that every token is multiplied with, the LM head included."""
    num_layers: int
    attention_width: int
    """Query heads x head size."""
    kv_width: int
    """Key heads x head size."""

    @classmethod
    def of_folder(cls, folder: Path) -> Self | None:
        """Return the shape of a model folder, None where its config has what this arithmetic does not know of."""
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        is_known = config.get("model_type") in DENSE_MODELS and not config.get("use_sliding_window")
        return cls.of_config(config) if is_known else None

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
            kv_width=kv_width,
        )

    def forward_flops(self, lengths: Iterable[int]) -> float:
        """Return the cost of one forward pass over sequences of these lengths, with causal attention."""
        return sum(self.flops(num_tokens=length, num_pairs=length * length / 2) for length in lengths)

    def flops(self, *, num_tokens: float, num_pairs: float) -> float:
        """Return the cost of computing tokens forward.

        Args:
            num_tokens: Computed.
            num_pairs: Of a computed token and one that it attends to.
        """
        # Scores and values: two products.
        attention = 4 * self.num_layers * self.attention_width * num_pairs
        return 2 * self.num_matmul_parameters * num_tokens + attention

    def decode_bytes(self, *, num_steps: float, num_context_tokens: float, bytes_per_number: int) -> float:
        """Return what decoding reads: all weights at each step, keys and values of all tokens before each sampled one.

        Args:
            num_steps: Steps of whole batches.
            num_context_tokens: Summed over sampled tokens.
            bytes_per_number: Of weights, keys and values alike.
        """
        keys_and_values = 2 * self.num_layers * self.kv_width * num_context_tokens
        return bytes_per_number * (self.num_matmul_parameters * num_steps + keys_and_values)

    def training_flops(self, lengths: Iterable[int]) -> float:
        """Return the cost of forward and backward pass."""
        return _FORWARD_AND_BACKWARD * self.forward_flops(lengths)


def mfu(flops: float, gpu_seconds: float, *, peak_flops: float) -> float:
    """Return model FLOPs utilisation: the share of the peak of all GPUs in their seconds that useful work reached."""
    return flops / (gpu_seconds * peak_flops)

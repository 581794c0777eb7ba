"""Causal attention over packed rows, plugged into transformers. Legend: N packed tokens, B sequences.

Transformers hands an attention function no sequence borders unless asked: with a mask or a cache, packed
rows silently attend across samples. So ours takes the borders from the caller and builds no mask.
"""

import inspect
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig

from skyrl_nat.errors import ConfigError

PACKED_ATTENTION = "skyrl_nat_packed"
"""Value of `attn_implementation`."""


def register() -> None:
    """Make `attn_implementation=PACKED_ATTENTION` known to transformers; safe to call twice."""
    AttentionInterface.register(PACKED_ATTENTION, packed_attention)
    AttentionMaskInterface.register(PACKED_ATTENTION, _no_mask)


def check_supported(config: PretrainedConfig) -> None:
    """Refuse models whose layers are not all full causal attention.

    Raises:
        ConfigError: The model has sliding windows, linear attention or capped scores.
    """
    layer_types = set(getattr(config, "layer_types", None) or ["full_attention"])
    has_window = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    is_capped = getattr(config, "attn_logit_softcapping", None)
    is_windowed = has_window and getattr(config, "layer_types", None) is None
    if layer_types != {"full_attention"} or is_windowed or is_capped:
        raise ConfigError(
            "model.path must be a model with full causal attention in every layer, got "
            f"{config.model_type} with layers {sorted(layer_types)}, sliding_window "
            f"{getattr(config, 'sliding_window', None)}, attn_logit_softcapping {is_capped}. "
            "Use a Llama- or Qwen-like model."
        )


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend causally inside each packed sequence.

    Args:
        module: The attention layer; not used.
        query: `[1, heads, N, head_dim]`.
        key: `[1, kv_heads, N, head_dim]`.
        value: `[1, kv_heads, N, head_dim]`.
        attention_mask: None always.
        scaling: Factor of the scores; None means 1 / sqrt(head_dim).
        **kwargs: `cu_seqlens` (`[B + 1]` int32), `borders` (the same as a tuple of integers).

    Returns:
        `[1, N, heads, head_dim]`, and None for the weights.

    Raises:
        ConfigError: Borders are missing or a mask was built.
    """
    del module
    borders: tuple[int, ...] | None = kwargs.get("borders")
    if borders is None or attention_mask is not None:
        raise ConfigError(
            "packed attention must be called with sequence borders and without a mask, got "
            f"borders={borders}, mask={attention_mask is not None}. Call the model through PackedCausalLM."
        )
    # The flash kernel takes half-precision only; fp32 on a GPU is for tests.
    if query.is_cuda and query.dtype is not torch.float32:
        return _varlen(query, key, value, kwargs["cu_seqlens"], borders, scaling), None
    return _per_sequence(query, key, value, borders, scaling), None


def _per_sequence(query: Tensor, key: Tensor, value: Tensor, borders: tuple[int, ...], scaling: float | None) -> Tensor:
    """Run one fused attention call per sequence."""
    repeats = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(repeats, dim=1) if repeats > 1 else key
    value = value.repeat_interleave(repeats, dim=1) if repeats > 1 else value
    outputs = [
        scaled_dot_product_attention(
            query[:, :, start:end],
            key[:, :, start:end],
            value[:, :, start:end],
            is_causal=True,
            scale=scaling,
        )
        for start, end in pairwise(borders)
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous()


def _varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens: Tensor,
    borders: tuple[int, ...],
    scaling: float | None,
) -> Tensor:
    """Run PyTorch's variable-length flash attention on all sequences at once."""
    from torch.nn.attention.varlen import varlen_attn

    packed = [t[0].transpose(0, 1).contiguous() for t in (query, key, value)]
    repeats = query.shape[1] // key.shape[1]
    extra: dict[str, Any] = {}
    if repeats > 1 and "enable_gqa" in inspect.signature(varlen_attn).parameters:
        extra["enable_gqa"] = True
    elif repeats > 1:
        packed[1:] = [t.repeat_interleave(repeats, dim=1) for t in packed[1:]]
    longest = max(end - start for start, end in pairwise(borders))
    output = varlen_attn(
        packed[0],
        packed[1],
        packed[2],
        cu_seqlens,
        cu_seqlens,
        longest,
        longest,
        scale=scaling,
        window_size=(-1, 0),
        **extra,
    )
    assert isinstance(output, Tensor)
    return output.unsqueeze(0)


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """Build no attention mask whatever is asked."""
    del args, kwargs

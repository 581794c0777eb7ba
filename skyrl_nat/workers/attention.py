"""Causal attention over packed rows, plugged into transformers.

Legend: N packed tokens, U of them computed, B sequences, S ranks that share them (`sequence_parallel`).

Transformers hands an attention function no sequence borders unless asked: with a mask or a cache, packed
rows silently attend across samples. So ours takes the borders from the caller and builds no mask.

In half precision on a GPU all sequences are one call: of the package flash-attn where it is installed, else of torch's
own flash attention. Everywhere else each sequence is a call.
"""

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from itertools import pairwise
from types import ModuleType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig

from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.errors import ConfigError
from skyrl_nat.workers.sequence_parallel import ALONE, SequenceRanks, not_compiled

PACKED_ATTENTION = "skyrl_nat_packed"
"""Value of `attn_implementation`."""
_FEWER_KEY_HEADS: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
"""How torch's own attention is told of them; before 2.13 it takes them unasked."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRows:
    """Borders of packed sequences, as queries (computed tokens) and as keys (all tokens)."""

    query_borders: tuple[int, ...]
    """Places among the U computed tokens, first 0, last U."""
    key_borders: tuple[int, ...]
    """Places among the N tokens, first 0, last N."""
    max_queries: int
    """Computed tokens of the longest sequence."""
    max_keys: int
    """Tokens of the longest sequence."""
    cu_queries: Tensor
    """`[B + 1]` int32, `query_borders` on the device."""
    cu_keys: Tensor
    """`[B + 1]` int32, `key_borders` on the device."""
    source: Tensor | None
    """`[N]` int64: the computed token that stands for each; None if all are computed."""
    ranks: SequenceRanks
    """Who shares the tokens."""

    @classmethod
    def of(cls, micro_batch: MicroBatch, ranks: SequenceRanks = ALONE) -> Self:
        """Return the rows of a micro-batch, on its device; tokens that fill up the ranks' slices are one row more."""
        cu_queries, cu_keys = micro_batch.cu_computed, micro_batch.cu_seqlens
        num_computed = micro_batch.num_computed
        source = micro_batch.source if num_computed < micro_batch.num_tokens else None
        if padding := ranks.padding(num_computed):
            cu_queries, cu_keys = (torch.cat([cu, cu[-1:] + padding]) for cu in (cu_queries, cu_keys))
            if source is not None:
                fill = torch.arange(num_computed, num_computed + padding, device=source.device)
                source = torch.cat([source, fill])
        query_borders, key_borders = tuple(cu_queries.tolist()), tuple(cu_keys.tolist())
        return cls(
            query_borders=query_borders,
            key_borders=key_borders,
            max_queries=_longest(query_borders),
            max_keys=_longest(key_borders),
            cu_queries=cu_queries,
            cu_keys=cu_keys,
            source=source,
            ranks=ranks,
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
        query: `[1, heads, U / S, head_dim]`, this rank's tokens.
        key: `[1, kv_heads, U / S, head_dim]`.
        value: `[1, kv_heads, U / S, head_dim]`.
        attention_mask: None always.
        scaling: Factor of the scores; None means 1 / sqrt(head_dim).
        **kwargs: `rows`, the `PackedRows`.

    Returns:
        `[1, U / S, heads, head_dim]`, and None for the weights.

    Raises:
        ConfigError: Rows are missing or a mask was built.
    """
    del module
    rows: PackedRows | None = kwargs.get("rows")
    if rows is None or attention_mask is not None:
        raise ConfigError(
            "packed attention must be called with the rows' borders and without a mask, got "
            f"rows={rows is not None}, mask={attention_mask is not None}. Call the model through PackedCausalLM."
        )
    query, key, value = (rows.ranks.to_heads(t) for t in (query, key, value))
    if rows.source is not None:
        # The keys of an equal beginning are those of the sequence that computed it.
        key, value = (t.index_select(2, rows.source) for t in (key, value))
    attend = _kernel(query.device.type, query.dtype)
    return rows.ranks.to_tokens(attend(query, key, value, rows, scaling)), None


def kernel_name(device: str, dtype: torch.dtype) -> str:
    """Return what computes attention for tensors of that kind: `flash-attn` and its version, `torch varlen`, `sdpa`."""
    kernel = _kernel(device, dtype)
    if kernel is _flash:
        return f"flash-attn {_flash_attn().__version__}"
    return "torch varlen" if kernel is _varlen else "sdpa"


def _kernel(device: str, dtype: torch.dtype) -> Callable[..., Tensor]:
    # Flash kernels take half precision only; fp32 on a GPU is for tests.
    if device != "cuda" or dtype is torch.float32:
        return _per_sequence
    return _varlen if _flash_attn() is None else _flash


@functools.cache
def _flash_attn() -> Any:
    """Return the package flash-attn, None where it is not installed, does not load or is too old."""
    try:
        module: ModuleType = importlib.import_module("flash_attn")
    except (ImportError, OSError):  # a build for another torch does not load
        return None
    # Before 2.1 a causal mask began at the first key, and not with the last query at the last key.
    version = tuple(int(part) for part in module.__version__.split(".")[:2])
    return module if version >= (2, 1) else None


def _longest(borders: tuple[int, ...]) -> int:
    return max(end - start for start, end in pairwise(borders))


# Borders differ from batch to batch, and must not be compiled in.
@not_compiled
def _per_sequence(query: Tensor, key: Tensor, value: Tensor, rows: PackedRows, scaling: float | None) -> Tensor:
    """Run one fused attention call per sequence."""
    repeats = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(repeats, dim=1) if repeats > 1 else key
    value = value.repeat_interleave(repeats, dim=1) if repeats > 1 else value
    num_queries = [end - start for start, end in pairwise(rows.query_borders)]
    num_keys = [end - start for start, end in pairwise(rows.key_borders)]
    # Split, not slices: the gradient of a slice is as large as the whole.
    parts = zip(
        query.split(num_queries, dim=2),
        key.split(num_keys, dim=2),
        value.split(num_keys, dim=2),
        strict=True,
    )
    outputs = [_attend(q, k, v, scaling) for q, k, v in parts]
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous()


def _attend(query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
    """Attend causally in one sequence whose last tokens are the queries."""
    num_queries, num_keys = query.shape[2], key.shape[2]
    mask = None
    if num_queries < num_keys:
        # `is_causal` would align the first query with the first key.
        mask = torch.ones(num_queries, num_keys, dtype=torch.bool, device=query.device).tril(num_keys - num_queries)
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None, scale=scaling)


def _varlen(query: Tensor, key: Tensor, value: Tensor, rows: PackedRows, scaling: float | None) -> Tensor:
    """Run PyTorch's variable-length flash attention on all sequences at once; queries are each row's last tokens."""
    packed = [t[0].transpose(0, 1).contiguous() for t in (query, key, value)]
    output = varlen_attn(
        packed[0],
        packed[1],
        packed[2],
        rows.cu_queries,
        rows.cu_keys,
        rows.max_queries,
        rows.max_keys,
        scale=scaling,
        window_size=(-1, 0),
        **_FEWER_KEY_HEADS,
    )
    assert isinstance(output, Tensor)
    return output.unsqueeze(0)


# Its versions compile or do not.
@not_compiled
def _flash(query: Tensor, key: Tensor, value: Tensor, rows: PackedRows, scaling: float | None) -> Tensor:
    """Run flash-attn on all sequences at once; queries are each row's last tokens."""
    output = _flash_attn().flash_attn_varlen_func(
        *(t[0].transpose(0, 1).contiguous() for t in (query, key, value)),
        cu_seqlens_q=rows.cu_queries,
        cu_seqlens_k=rows.cu_keys,
        max_seqlen_q=rows.max_queries,
        max_seqlen_k=rows.max_keys,
        softmax_scale=scaling,
        causal=True,
    )
    return output.unsqueeze(0)


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """Build no attention mask whatever is asked."""
    del args, kwargs

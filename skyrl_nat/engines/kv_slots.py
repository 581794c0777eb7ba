"""KV cache of the embedded engine: one row per sequence, and the attention over it.

Letters: R rows, H key/value heads, Q query heads per key/value head, C capacity in tokens, D head size,
L layers, T new tokens. Active rows are always rows `0 .. num_active - 1`, so that decoding works on views;
rows behind them keep the KV of finished sequences, to be reused where a new prompt starts with them.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (the usual name)
from torch import Tensor, nn

from skyrl_nat.batching.prefixes import common_prefix
from skyrl_nat.errors import EngineError

_CAPACITY_STEP = 128


@dataclass(slots=True, kw_only=True)
class KvShape:
    """Sizes that do not change."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: str

    @property
    def token_bytes(self) -> int:
        """Bytes of KV of one token."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype.itemsize


@dataclass(slots=True, kw_only=True)
class _Step:
    """What the attention layers of one forward pass do: fill one row, or extend all active rows."""

    num_rows: int
    row: int = 0
    start: int = 0
    stop: int = 0
    rows: Tensor | None = None
    lengths: Tensor | None = None
    mask: Tensor | None = None


@dataclass(slots=True)
class _Row:
    tokens: list[int] = field(default_factory=list)
    """Tokens whose KV the row holds."""
    last_use: int = 0


class KvSlots:
    """Rows of KV and the attention that reads and writes them.

    Args:
        shape: Sizes.
        max_rows: Rows at most.
        max_bytes: Memory at most; one row is always allowed.
    """

    def __init__(self, shape: KvShape, max_rows: int, max_bytes: int) -> None:
        self.shape = shape
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.num_active = 0
        self._rows: list[_Row] = []
        self._capacity = 0
        self._clock = 0
        self._keys = torch.empty(0)
        self._values = torch.empty(0)
        self._step = _Step(num_rows=0)

    def can_admit(self, num_tokens: int) -> bool:
        """Return whether one more sequence of this length at most fits."""
        if self.num_active == 0:
            return True
        capacity = max(self._capacity, _round_up(num_tokens))
        return self.num_active < self._num_rows_at(capacity)

    def admit(self, tokens: list[int], max_tokens: int, *, may_reuse: bool) -> tuple[int, int]:
        """Make room for a sequence as the last active row.

        Args:
            tokens: The sequence so far.
            max_tokens: Its length at most.
            may_reuse: Keep KV of the longest prefix that some row holds.

        Returns:
            The row, and how many of its first tokens have KV already (always fewer than all).
        """
        self._reserve(max_tokens)
        target = self.num_active
        source, length = self._find_prefix(tokens) if may_reuse else (-1, 0)
        if source < target:
            oldest = min(range(target, len(self._rows)), key=lambda r: self._rows[r].last_use)
            self._swap(oldest, target)
            if length:
                self._copy(source, target, length)
        else:
            self._swap(source, target)
        row = self._rows[target]
        row.tokens = tokens[:length]
        self.num_active += 1
        return target, length

    def fork(self, source: int, max_tokens: int) -> int:
        """Copy an active row to a new active row; returns it."""
        tokens = self._rows[source].tokens
        self._reserve(max_tokens)
        target = self.num_active
        oldest = min(range(target, len(self._rows)), key=lambda r: self._rows[r].last_use)
        self._swap(oldest, target)
        self._copy(source, target, len(tokens))
        self._rows[target].tokens = list(tokens)
        self.num_active += 1
        return target

    def release(self, row: int) -> None:
        """End an active row; the last active row takes its place, so callers move with it."""
        self._clock += 1
        self._rows[row].last_use = self._clock
        self._swap(row, self.num_active - 1)
        self.num_active -= 1

    def clear(self) -> None:
        """Forget all KV and end all rows (new weights)."""
        self.num_active = 0
        for row in self._rows:
            row.tokens = []

    def begin_prefill(self, row: int, start: int, tokens: list[int]) -> None:
        """Let the next forward pass fill one row with the KV of `tokens[start:]`."""
        self._step = _Step(num_rows=1, row=row, start=start, stop=len(tokens))
        self._rows[row].tokens = list(tokens)

    def begin_decode(self, new_tokens: list[int]) -> Tensor:
        """Let the next forward pass extend every active row by one token.

        Returns:
            `[R]` positions of the new tokens.
        """
        num = self.num_active
        device = self.shape.device
        lengths = [len(row.tokens) for row in self._rows[:num]]
        positions = torch.tensor(lengths, device=device)
        stop = max(lengths) + 1
        mask = None
        if min(lengths) + 1 != stop:
            mask = torch.arange(stop, device=device)[None, :] <= positions[:, None]
            mask = mask[:, None, None, :]
        self._step = _Step(
            num_rows=num,
            stop=stop,
            rows=torch.arange(num, device=device),
            lengths=positions,
            mask=mask,
        )
        for row, token in zip(self._rows[:num], new_tokens, strict=True):
            row.tokens.append(token)
        return positions

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Write the new keys and values, return attention over all of each row.

        Args:
            layer: Index of the layer.
            query: `[R, H * Q, T, D]`.
            key: `[R, H, T, D]`.
            value: `[R, H, T, D]`.
            scale: Factor on the scores.

        Returns:
            `[R, H * Q, T, D]`.
        """
        step = self._step
        keys, values = self._keys[layer], self._values[layer]
        if step.lengths is None:
            keys[step.row, :, step.start : step.stop] = key[0]
            values[step.row, :, step.start : step.stop] = value[0]
            return self._attend_prefill(step, keys, values, query, scale)
        keys[step.rows, :, step.lengths] = key[:, :, 0]
        values[step.rows, :, step.lengths] = value[:, :, 0]
        num_kv_heads = keys.shape[1]
        # The query heads of one key/value head take the place of query positions: no KV is repeated.
        grouped = query.reshape(step.num_rows, num_kv_heads, -1, query.shape[-1])
        out = F.scaled_dot_product_attention(
            grouped,
            keys[: step.num_rows, :, : step.stop],
            values[: step.num_rows, :, : step.stop],
            attn_mask=step.mask,
            scale=scale,
        )
        return out.reshape(query.shape)

    def _attend_prefill(self, step: _Step, keys: Tensor, values: Tensor, query: Tensor, scale: float) -> Tensor:
        mask = None
        if step.start:
            positions = torch.arange(step.start, step.stop, device=query.device)
            mask = torch.arange(step.stop, device=query.device)[None, :] <= positions[:, None]
        return F.scaled_dot_product_attention(
            query,
            keys[step.row : step.row + 1, :, : step.stop],
            values[step.row : step.row + 1, :, : step.stop],
            attn_mask=mask,
            is_causal=mask is None,
            scale=scale,
            enable_gqa=True,
        )

    def _num_rows_at(self, capacity: int) -> int:
        affordable = self.max_bytes // (self.shape.token_bytes * capacity)
        return max(1, min(self.max_rows, affordable))

    def _reserve(self, max_tokens: int) -> None:
        """Grow to the capacity wanted and to a free row; both stay within the memory allowed."""
        capacity = max(self._capacity, _round_up(max_tokens))
        num_rows = max(self._num_rows_at(capacity), self.num_active + 1)
        if capacity == self._capacity and num_rows == len(self._rows):
            return
        s = self.shape
        size = (s.num_layers, num_rows, s.num_kv_heads, capacity, s.head_dim)
        kept = min(num_rows, len(self._rows))
        for name in ("_keys", "_values"):
            old: Tensor = getattr(self, name)
            # Zeros: a masked place counts nothing, but nothing times the NaN of fresh memory is NaN.
            new = torch.zeros(size, dtype=s.dtype, device=s.device)
            if kept:
                new[:, :kept, :, : self._capacity] = old[:, :kept]
            setattr(self, name, new)
        self._rows = self._rows[:kept] + [_Row() for _ in range(num_rows - kept)]
        self._capacity = capacity

    def _find_prefix(self, tokens: list[int]) -> tuple[int, int]:
        """Return the row that shares the longest prefix, and its length; at least one token stays."""
        best, best_length = -1, 0
        for index, row in enumerate(self._rows):
            length = min(common_prefix(row.tokens, tokens), len(tokens) - 1)
            if length > best_length:
                best, best_length = index, length
        return best, best_length

    def _swap(self, a: int, b: int) -> None:
        if a == b:
            return
        length = max(len(self._rows[a].tokens), len(self._rows[b].tokens))
        for kv in (self._keys, self._values):
            kv[:, [a, b], :, :length] = kv[:, [b, a], :, :length]
        self._rows[a], self._rows[b] = self._rows[b], self._rows[a]

    def _copy(self, source: int, target: int, length: int) -> None:
        for kv in (self._keys, self._values):
            kv[:, target, :, :length] = kv[:, source, :, :length]


def slot_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend over the rows of `kwargs["kv_slots"]`; transformers' attention interface.

    Args:
        module: The attention layer; its `layer_idx` picks the layer's KV.
        query: `[R, H * Q, T, D]`.
        key: `[R, H, T, D]`.
        value: `[R, H, T, D]`.
        attention_mask: Not used: the rows know their lengths.
        **kwargs: `scaling`, `kv_slots`, and what else transformers passes.

    Returns:
        `[R, T, H * Q, D]` and no weights.
    """
    if kwargs.get("sliding_window") or kwargs.get("softcap") or kwargs.get("s_aux") is not None:
        raise EngineError(
            "The embedded engine computes full causal attention only, found a model with a sliding "
            "window, soft caps or sinks. Use engine.kind=vllm."
        )
    slots: KvSlots = kwargs["kv_slots"]
    scale = kwargs.get("scaling") or query.shape[-1] ** -0.5
    layer: Any = module.layer_idx
    return slots.attend(layer, query, key, value, scale).transpose(1, 2), None


def _round_up(num_tokens: int) -> int:
    return -(-num_tokens // _CAPACITY_STEP) * _CAPACITY_STEP

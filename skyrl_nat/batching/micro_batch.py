"""The tensors of one forward pass. Legend: N packed tokens, U computed ones, B sequences."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(slots=True, kw_only=True)
class MicroBatch:
    """Packed sequences, one-dimensional. Everything per token is aligned with the token itself.

    `x[i]` of a log-prob tensor is the log-prob of `token_ids[i]` given the tokens before it in the same
    sequence; it has no meaning where `loss_mask[i]` is False (0.0 there).
    """

    token_ids: Tensor
    """`[N]` int64."""
    position_ids: Tensor
    """`[N]` int64, starting at 0 in every sequence."""
    cu_seqlens: Tensor
    """`[B + 1]` int32, first 0, last N."""
    loss_mask: Tensor
    """`[N]` bool; never True at the first token of a sequence."""
    advantages: Tensor
    """`[N]` fp32; 0 where `loss_mask` is False."""
    token_weights: Tensor
    """`[N]` fp32 numerators of the reduction; 0 where `loss_mask` is False."""
    rollout_logprobs: Tensor
    """`[N]` fp32, the engine's."""
    computed: Tensor
    """`[U]` int64 places of the tokens that the model computes: an equal beginning of two sequences once."""
    source: Tensor
    """`[N]` int64: which of the U computed tokens stands for each token."""
    cu_computed: Tensor
    """`[B + 1]` int32 borders of the sequences' own computed tokens, first 0, last U."""
    selected: Tensor
    """`[N]` bool: tokens that `batching.shaping` picked from the batch for the loss to treat apart."""
    old_logprobs: Tensor | None = None
    """`[N]` fp32, the trainer's before this batch; None with `old_logprobs` other than `recompute`."""
    ref_logprobs: Tensor | None = None
    """`[N]` fp32, the reference's; None without a KL term."""
    sample_ids: tuple[str, ...] = ()
    """Ids of the B sequences, in order; a filler batch has none."""

    @property
    def num_tokens(self) -> int:
        """N."""
        return int(self.token_ids.numel())

    @property
    def num_computed(self) -> int:
        """U."""
        return int(self.computed.numel())

    @property
    def num_loss_tokens(self) -> int:
        """Number of True entries in the loss mask."""
        return int(self.loss_mask.sum())

    def to(self, device: torch.device) -> "MicroBatch":
        """Return a copy on a device."""
        moved: dict[str, Any] = {
            name: value.to(device) if isinstance(value, Tensor) else value
            for name in self.__slots__
            for value in [getattr(self, name)]
        }
        return MicroBatch(**moved)

"""Several ranks compute one micro-batch: each a slice of its tokens, and in attention a part of the heads of all.

Legend: N packed tokens, U of them computed, S ranks that share a micro-batch.

Only attention looks at other tokens. Around it all-to-all turns slices of the tokens into slices of the heads and back,
so that whatever else is kept for the backward pass is 1 / S as long (Ulysses, arXiv:2309.14509, section 3).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad
from transformers import PretrainedConfig

from skyrl_nat.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRanks:
    """The ranks that share each micro-batch, as one of them sees it; one rank alone exchanges nothing."""

    size: int = 1
    """S."""
    rank: int = 0
    """This rank's place among them, in `[0, S)`."""
    group: dist.ProcessGroup | None = None
    """Their process group; None with one rank."""

    def slice_of(self, computed: Tensor) -> Tensor:
        """Return this rank's slice of the computed tokens, the first of them repeated until all slices are as long.

        Args:
            computed: `[U]` int64 places.

        Returns:
            `[ceil(U / S)]`.
        """
        padded = pad(computed, (0, self.padding(computed.numel())), value=0)
        return padded.chunk(self.size)[self.rank]

    def padding(self, num_computed: int) -> int:
        """Return how many tokens are missing to a multiple of S."""
        return -num_computed % self.size

    def to_heads(self, tensor: Tensor) -> Tensor:
        """Turn this rank's tokens of all heads into all tokens of its heads.

        Heads that do not split evenly, keys and values of few heads, are repeated as often as that takes.

        Args:
            tensor: `[1, heads, U / S, head_dim]`.

        Returns:
            `[1, lcm(heads, S) / S, U, head_dim]`.
        """
        if self.group is None:
            return tensor
        repeats = math.lcm(tensor.shape[1], self.size) // tensor.shape[1]
        return _exchanged(tensor.repeat_interleave(repeats, dim=1) if repeats > 1 else tensor, self)

    def to_tokens(self, tensor: Tensor) -> Tensor:
        """Turn all tokens of this rank's heads into its tokens of all heads.

        Args:
            tensor: `[1, U, heads / S, head_dim]`.

        Returns:
            `[1, U / S, heads, head_dim]`.
        """
        return tensor if self.group is None else _exchanged(tensor, self)

    def whole(self, own: Tensor) -> Tensor:
        """Return the sum over the ranks, whose gradient stays with the rank that each entry came from.

        Every rank computes the whole loss from the result, and gradients of parameters are summed over ranks later: so
        each rank must pass on the gradient of its own entries, once.

        Args:
            own: `[N]`, 0 at the entries of other ranks.
        """
        return own if self.group is None else _Whole.apply(own, self.group)  # type: ignore[return-value]


ALONE = SequenceRanks()


def join_sequence_ranks(size: int) -> SequenceRanks:
    """Return the neighbours that this rank shares micro-batches with; all ranks call this together.

    Args:
        size: S, a divisor of the number of ranks.
    """
    if size == 1:
        return ALONE
    group, _ = dist.new_subgroups(size)
    assert isinstance(group, dist.ProcessGroup)
    return SequenceRanks(size=size, rank=dist.get_rank(group), group=group)


def check_heads(config: PretrainedConfig, size: int) -> None:
    """Refuse models whose query heads do not split evenly among the ranks of a micro-batch.

    Raises:
        ConfigError: They do not.
    """
    if config.num_attention_heads % size:
        raise ConfigError(
            f"model.sequence_parallel_size must divide the {config.num_attention_heads} query heads of model.path, "
            f"got {size}. Take a divisor of them."
        )


def not_compiled(function: F) -> F:
    """Return a function that compiled layers call as it is."""
    return torch.compiler.disable(function)  # type: ignore[return-value]


@not_compiled
def _exchanged(tensor: Tensor, ranks: SequenceRanks) -> Tensor:
    """Give every rank its part along dimension 1, and put together along dimension 2 what comes from the ranks."""
    return _Exchange.apply(tensor, ranks)  # type: ignore[return-value]


def _exchange(tensor: Tensor, ranks: SequenceRanks, split: int, join: int) -> Tensor:
    parts = torch.stack(tensor.chunk(ranks.size, dim=split))
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts, group=ranks.group)
    return torch.cat(received.unbind(), dim=join)


class _Exchange(torch.autograd.Function):
    """`_exchanged`; its gradient is the exchange back."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ranks: SequenceRanks) -> Tensor:
        ctx.ranks = ranks
        return _exchange(tensor, ranks, 1, 2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _exchange(grads[0], ctx.ranks, 2, 1), None


class _Whole(torch.autograd.Function):
    """Sum over ranks forwards, nothing backwards."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, group: dist.ProcessGroup) -> Tensor:
        del ctx
        total = own.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        del ctx
        return grads[0], None

"""What one batch of training said of every token, as columns for the record."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from skyrl_nat.batching.micro_batch import MicroBatch

TrainedTokens = tuple[Tensor, Tensor]
"""Of one micro-batch, `[N]` each: log-probs under the policy as it was trained, and where a bound was active."""


def trained_columns(trained: Iterable[tuple[MicroBatch, TrainedTokens]]) -> dict[str, NDArray[np.generic]]:
    """Return one entry per sample in `sample_ids` and `sizes`, and one per loss token in the others, in that order.

    Advantages are those that the loss got: whitened, with a KL term or whatever else the batch did to them.

    Args:
        trained: Micro-batches of all ranks, fillers included, each with its tokens.
    """
    names: list[str] = []
    sizes, logprobs, advantages, clipped = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
    for micro_batch, (scored, is_clipped) in trained:
        mask = micro_batch.loss_mask
        if not micro_batch.sample_ids:
            continue
        names += micro_batch.sample_ids
        before = torch.cat([torch.zeros(1, dtype=torch.int64), mask.cumsum(0)])
        sizes.append(before[micro_batch.cu_seqlens.long()].diff())
        logprobs.append(scored[mask])
        advantages.append(micro_batch.advantages[mask])
        clipped.append(is_clipped[mask])
    return {
        "sample_ids": np.array(names, dtype=np.str_),
        "sizes": _joined(sizes, torch.int64),
        "logprobs": _joined(logprobs, torch.float32),
        "advantages": _joined(advantages, torch.float32),
        "clipped": _joined(clipped, torch.bool),
    }


def _joined(parts: Sequence[Tensor], dtype: torch.dtype) -> NDArray[np.generic]:
    return torch.cat([torch.empty(0, dtype=dtype), *(part.to(dtype) for part in parts)]).numpy()

"""Copies of tensors that a checkpoint is written from while training goes on with the tensors themselves."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from skyrl_nat.workers.offload import aligned, host_buffer


class Snapshot:
    """One host buffer for all copies, page-locked for GPUs and kept for the next time."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._copies: dict[tuple[int, int], Tensor] = {}

    def take(self, tensors: Iterable[Tensor], value_of: Callable[[Tensor], Tensor]) -> None:
        """Copy tensors; copies of the last time are overwritten.

        Args:
            tensors: This rank's parts are copied.
            value_of: Returns where the values of a part are, if its memory was given up; see `HostMemory.value_of`.

        Raises:
            WorkerError: So much memory cannot be page-locked.
        """
        parts = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
        sizes = [aligned(part.numel() * part.element_size()) for part in parts]
        is_pinned = any(part.device.type == "cuda" for part in parts)
        if self._buffer.numel() < sum(sizes):
            self._copies.clear()
            self._buffer = host_buffer(sum(sizes), is_pinned=is_pinned, purpose="checkpoint.asynchronous")
        self._copies, start = {}, 0
        for part, size in zip(parts, sizes, strict=True):
            place = self._buffer[start : start + part.numel() * part.element_size()]
            copy = place.view(part.dtype).view(part.shape)
            copy.copy_(value_of(part), non_blocking=True)
            self._copies[_place(part)] = copy
            start += size
        if is_pinned:
            torch.cuda.synchronize()

    def value_of(self, part: Tensor) -> Tensor:
        """Return the copy of a part; a tensor that was not copied as it is."""
        return self._copies.get(_place(part), part)


def _place(part: Tensor) -> tuple[int, int]:
    """Return what stays the same of a part while its values change, and its memory comes and goes."""
    return part.untyped_storage()._cdata, int(part.storage_offset())

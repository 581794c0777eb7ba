"""Tensors whose device memory is given up for a while: their values wait in host memory.

What is given up is the storage, below tensors, views and FSDP2's own references to it, which all stay what they are.
"""

import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from skyrl_nat.errors import WorkerError

_ALIGNMENT = 16
"""Bytes: places in the host buffer at which a tensor of any format may begin."""
_PORTABLE = 1
"""CUDA's flag for memory that is page-locked in every context of the process."""


class HostMemory:
    """A group of tensors and the host buffer, allocated once, in which their values wait."""

    def __init__(self, tensors: Callable[[], Iterable[Tensor]]) -> None:
        """Remember the group.

        Args:
            tensors: Returns its tensors, all on one device; several may share memory.
        """
        self._tensors = tensors
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._away: dict[int, tuple[torch.UntypedStorage, Tensor]] = {}

    @property
    def is_away(self) -> bool:
        """Whether the values are in host memory, and there only."""
        return bool(self._away)

    def offload(self) -> int:
        """Move the values to host memory and free the device's; returns bytes, 0 where they are there already."""
        if self._away:
            return 0
        storages = _storages(self._tensors())
        self._reserve(sum(aligned(storage.nbytes()) for storage in storages), storages)
        start = 0
        for storage in storages:
            host = self._buffer[start : start + storage.nbytes()]
            host.copy_(_bytes_of(storage), non_blocking=True)
            self._away[storage._cdata] = storage, host
            start += aligned(storage.nbytes())
        _synchronize(storages)
        for storage in storages:
            storage.resize_(0)
        return sum(host.numel() for _, host in self._away.values())

    def onload(self) -> int:
        """Move the values back to the device; returns bytes, 0 where they are there already."""
        away, self._away = list(self._away.values()), {}
        for storage, host in away:
            storage.resize_(host.numel())
            _bytes_of(storage).copy_(host, non_blocking=True)
        _synchronize([storage for storage, _ in away])
        return sum(host.numel() for _, host in away)

    def value_of(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the group as it is in host memory while it is away; others as they are."""
        found = self._away.get(tensor.untyped_storage()._cdata)
        if found is None:
            return tensor
        values = found[1].view(tensor.dtype)
        # A place in the whole buffer, not in the slice.
        start = values.storage_offset() + tensor.storage_offset()
        return values.as_strided(tensor.size(), tensor.stride(), start)

    @contextmanager
    def resident(self) -> Iterator[None]:
        """Have the values on the device meanwhile, whether they are away or not."""
        was_away = self.is_away
        self.onload()
        try:
            yield
        finally:
            if was_away:
                self.offload()

    def _reserve(self, size: int, storages: list[torch.UntypedStorage]) -> None:
        """Have a buffer of at least some bytes."""
        if self._buffer.numel() < size:
            is_pinned = any(storage.device.type == "cuda" for storage in storages)
            self._buffer = host_buffer(size, is_pinned=is_pinned, purpose="model.offload")


def host_buffer(size: int, *, is_pinned: bool, purpose: str) -> Tensor:
    """Return host memory, page-locked for GPUs, so that copies run at the bus's speed.

    Args:
        size: In bytes.
        is_pinned: Whether it is page-locked.
        purpose: Key of the config that asks for it.

    Raises:
        WorkerError: So much memory cannot be locked.
    """
    buffer = torch.empty(size, dtype=torch.uint8)
    if is_pinned:
        # torch's own pinned allocator rounds up to powers of two: of a large buffer up to half would be lost.
        cuda: Any = torch.cuda.cudart()
        place = buffer.data_ptr()
        code = int(cuda.cudaHostRegister(place, size, _PORTABLE))
        if code:
            raise WorkerError(
                f"{purpose} must be able to page-lock {size / 2**30:.1f} GiB of host memory, got CUDA error {code}. "
                "Raise the limit of locked memory (ulimit -l) or do without it."
            )
        # Memory that is freed while it is locked could not be locked again for whoever gets it next.
        weakref.finalize(buffer, cuda.cudaHostUnregister, place)
    return buffer


def timed(move: Callable[[], int]) -> dict[str, float]:
    """Return `seconds` and `bytes` of a move."""
    started = time.monotonic()
    moved = move()
    return {"seconds": time.monotonic() - started, "bytes": float(moved)}


def _storages(tensors: Iterable[Tensor]) -> list[torch.UntypedStorage]:
    """Return the memory behind tensors, each piece once; what is a single number stays where it is."""
    local = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors if tensor.ndim]
    return list({storage._cdata: storage for storage in (tensor.untyped_storage() for tensor in local)}.values())


def _bytes_of(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)  # type: ignore[call-overload]


def aligned(size: int) -> int:
    """Return the bytes that so many take in a host buffer."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _synchronize(storages: list[torch.UntypedStorage]) -> None:
    if storages and storages[0].device.type == "cuda":
        torch.cuda.synchronize(storages[0].device)

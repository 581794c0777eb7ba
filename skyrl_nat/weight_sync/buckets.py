"""Many tensors in few buffers: both ends compute the same layout from the manifest alone."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from skyrl_nat.weight_sync.base import TensorSpec

ALIGNMENT = 256
"""Bytes; every tensor begins at a multiple, so that kernels read it at full width."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Consecutive tensors that travel together."""

    specs: tuple[TensorSpec, ...]
    offsets: tuple[int, ...]
    """First byte of each."""
    num_bytes: int

    def views(self, buffer: Tensor) -> Iterator[tuple[TensorSpec, Tensor]]:
        """Yield the tensors as they lie in a `[bytes]` uint8 buffer."""
        for spec, offset in zip(self.specs, self.offsets, strict=True):
            yield spec, buffer[offset : offset + num_bytes(spec)].view(getattr(torch, spec.dtype)).view(spec.shape)


def num_bytes(spec: TensorSpec) -> int:
    """Return the bytes of a tensor."""
    return math.prod(spec.shape) * getattr(torch, spec.dtype).itemsize


def plan_buckets(manifest: Sequence[TensorSpec], bucket_bytes: int) -> list[Bucket]:
    """Return buckets of at most so many bytes, in order; a larger tensor has one to itself.

    Args:
        manifest: What travels.
        bucket_bytes: Size of a buffer.
    """
    buckets: list[Bucket] = []
    specs: list[TensorSpec] = []
    offsets: list[int] = []
    used = 0

    def close() -> None:
        if specs:
            buckets.append(Bucket(tuple(specs), tuple(offsets), used))

    for spec in manifest:
        size = -(-num_bytes(spec) // ALIGNMENT) * ALIGNMENT
        if used + size > bucket_bytes:
            close()
            specs, offsets, used = [], [], 0
        specs.append(spec)
        offsets.append(used)
        used += size
    close()
    return buckets

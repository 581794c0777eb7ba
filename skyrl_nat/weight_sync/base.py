"""What a transport owes, and the records that describe weights on the wire."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One tensor on the wire."""

    name: str
    """Name in a Hugging Face checkpoint, without wrapper prefixes (FSDP, compile, PEFT)."""
    shape: tuple[int, ...]
    dtype: str
    """torch dtype name in which it travels, for instance `bfloat16`."""


WORDS_AT_ONCE = 2**22
"""Of a checksum: four arrays of so many 64-bit numbers are made meanwhile, 128 MiB."""
_MULTIPLIERS = (-7046029254386353131, -4658895280553007687, -7723592293110705685)
"""Odd, of SplitMix64 (Steele, Lea, Flood 2014), as signed 64-bit numbers."""


def tensor_digest(tensor: Tensor) -> str:
    """Return a checksum of a tensor's raw bytes in their order, computed on its own device; the same on every device.

    The sum, modulo 2^64, of a hash of each 32-bit word with its place: changed bits and words that change places are
    noticed, a shape or a dtype over the same bytes is not. Not meant against somebody who wants two to be equal.

    Returns:
        16 hexadecimal digits.
    """
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if raw.storage_offset() % 4:
        raw = raw.clone()  # a view of words must begin at one
    words = raw if raw.numel() % 4 else raw.view(torch.int32)
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for start in range(0, words.numel(), WORDS_AT_ONCE):
        part = words[start : start + WORDS_AT_ONCE].to(torch.int64)
        mixed = torch.arange(start + 1, start + 1 + part.numel(), device=words.device).mul_(_MULTIPLIERS[0]).add_(part)
        for multiplier in _MULTIPLIERS[1:]:
            mixed = mixed.bitwise_xor_(mixed >> 31).mul_(multiplier)
        total += mixed.bitwise_xor_(mixed >> 31).sum()
    return f"{int(total) % 2**64:016x}"


def memory_folder() -> Path | None:
    """Return a folder whose files lie in memory, None where the machine has none."""
    shared_memory = Path("/dev/shm")
    return shared_memory if shared_memory.is_dir() else None


class WorkerCalls(Protocol):
    """The calls that a transport makes on policy ranks or on engines, wherever they run."""

    @property
    def size(self) -> int:
        """Number of workers."""
        ...

    @property
    def ranks(self) -> list[int]:
        """Rank of each worker: those that are away leave gaps."""
        ...

    def call_all(self, method: str, *args: Any, **kwargs: Any) -> Awaitable[list[Any]]:
        """Call a method on every worker with the same arguments; results in rank order."""
        ...

    def call_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> Awaitable[list[Any]]:
        """Call a method on every worker with its own positional arguments."""
        ...

    async def call_opaque(self, rank: int, method: str, *args: Any) -> Any:
        """Call a method on one worker and return, once it has ended, what others take in place of the result."""
        ...


class WeightTransport(Protocol):
    """Moves one version of the weights from the policy ranks to the engines."""

    async def connect(self, policy: WorkerCalls, engines: WorkerCalls) -> None:
        """Set up the channel; called again after an engine or the policy group was replaced."""
        ...

    async def push(self, policy: WorkerCalls, engines: WorkerCalls, version: int) -> int:
        """Deliver what changed; return the bytes that each engine took when all serve `version`.

        The engines are paused by the caller. Raises WeightSyncError; then no engine may be resumed
        before a later push succeeded.
        """
        ...

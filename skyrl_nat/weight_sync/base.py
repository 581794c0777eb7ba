"""What a transport owes, and the records that describe weights on the wire."""

import hashlib
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


def tensor_digest(tensor: Tensor) -> str:
    """Return the SHA-256 (hex, first 16 characters) of a tensor's raw bytes in its own dtype."""
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(raw.data).hexdigest()[:16]


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

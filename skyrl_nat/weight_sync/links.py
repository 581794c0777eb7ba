"""How buffers get from one process to others: broadcast between them, or memory that they share.

Both kinds meet at a store that the sender hosts. Ends are numbered, 0 is the sender. A push is `begin`, one `send` or
`receive` for each bucket, `end`.
"""

import base64
import os
import pickle
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.multiprocessing.reductions import reduce_tensor

from skyrl_nat.errors import WeightSyncError
from skyrl_nat.weight_sync.base import memory_folder

NUM_BUFFERS = 2
"""Of shared memory: while receivers read one, the sender fills the other."""
POLL_S = 2e-4
_CLOSED = "closed"
_STORAGE_DEVICE = 6
"""Place of the device's number among the arguments that rebuild a shared CUDA tensor."""


class Link(Protocol):
    """Carries the buckets of one push after the other."""

    def begin(self, num_bytes: int) -> None:
        """Begin a push whose largest bucket has so many bytes."""
        ...

    def buffer(self, index: int) -> Tensor:
        """Return a uint8 buffer for a bucket to be sent; waits until nobody reads it any more."""
        ...

    def send(self, index: int, num_bytes: int) -> None:
        """Send the first bytes of what `buffer` gave."""
        ...

    def receive(self, index: int, num_bytes: int) -> Tensor:
        """Return the `[num_bytes]` uint8 bucket, valid until `release`."""
        ...

    def release(self, index: int) -> None:
        """Say that a received bucket was read."""
        ...

    def end(self, num_buckets: int) -> None:
        """End a push and give its memory back; the sender waits until all was read."""
        ...

    def close(self) -> None:
        """Leave; ends the waits of the peers."""
        ...


class BroadcastLink:
    """A process group by hand, beside those of the policy and of vLLM: gloo on CPUs, NCCL between GPUs."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta, device: torch.device) -> None:
        """Join; blocks until all ends are there."""
        self._device = device
        self._memory = torch.empty(0, dtype=torch.uint8, device=device)
        mesh = PrefixStore("mesh", store)
        if device.type == "cuda":
            options = dist.ProcessGroupNCCL.Options()  # pyright: ignore[reportAttributeAccessIssue]
            options._timeout = timeout
            self._group: Any = dist.ProcessGroupNCCL(mesh, rank, size, options)  # pyright: ignore[reportAttributeAccessIssue]
            self._broadcast(torch.zeros(1, dtype=torch.uint8, device=device))  # which makes the communicator
        else:
            self._group = dist.ProcessGroupGloo(mesh, rank, size, timeout)

    def begin(self, num_bytes: int) -> None:
        """Make the one buffer: a broadcast has ended before the next begins."""
        self._memory = torch.empty(num_bytes, dtype=torch.uint8, device=self._device)

    def buffer(self, index: int) -> Tensor:
        """Return the buffer."""
        del index
        return self._memory

    def send(self, index: int, num_bytes: int) -> None:
        """Broadcast from rank 0."""
        del index
        self._broadcast(self._memory[:num_bytes])

    def receive(self, index: int, num_bytes: int) -> Tensor:
        """Receive in the own buffer."""
        self.send(index, num_bytes)
        return self._memory[:num_bytes]

    def release(self, index: int) -> None:
        """Wait until what was made of the buffer no longer reads it."""
        del index
        _synchronize(self._device)

    def end(self, num_buckets: int) -> None:
        """Drop the buffer."""
        del num_buckets
        self._memory = self._memory[:0].clone()

    def close(self) -> None:
        """Drop the sockets."""
        group, self._group = self._group, None
        if group is not None and self._device.type == "cuda":
            group.abort()

    def _broadcast(self, tensor: Tensor) -> None:
        if self._group is None:
            raise WeightSyncError("The weight channel must be open, found it closed. Connect again.")
        options = dist.BroadcastOptions()
        options.rootRank = 0
        options.rootTensor = 0
        _synchronize(self._device)
        self._group.broadcast([tensor], options).wait()
        _synchronize(self._device)


class SharedLink:
    """Buffers of the sender that the receivers map: CUDA IPC on one GPU, shared memory on CPUs of one machine."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta, device: torch.device) -> None:
        """Take what is needed; memory is shared at the beginning of a push."""
        self._store = store
        self._rank = rank
        self._size = size
        self._timeout_s = timeout.total_seconds()
        self._device = device
        self._memory: list[Tensor] = []
        self._push = 0

    def begin(self, num_bytes: int) -> None:
        """Share two buffers, or map the sender's."""
        if self._rank:
            handles = pickle.loads(base64.b64decode(self._get(self._key("memory"))))
            self._memory = [_map(handle, num_bytes, self._device) for handle in handles]
            self._store.add(self._key("mapped"), 1)
            return
        made = [_share(num_bytes, self._device) for _ in range(NUM_BUFFERS)]
        self._memory = [memory for memory, _ in made]
        handles = [handle for _, handle in made]
        try:
            self._store.set(self._key("memory"), base64.b64encode(pickle.dumps(handles)).decode())
            self._await_count(self._key("mapped"))
        finally:
            for path in handles:
                if isinstance(path, str):
                    Path(path).unlink()  # what is mapped stays; a killed process leaves no file

    def buffer(self, index: int) -> Tensor:
        """Return the next buffer, once all receivers have read its bucket before."""
        if index >= NUM_BUFFERS:
            self._await_readers(index - NUM_BUFFERS)
        return self._memory[index % NUM_BUFFERS]

    def send(self, index: int, num_bytes: int) -> None:
        """Say that the buffer is full."""
        del num_bytes
        _synchronize(self._device)
        self._store.set(self._key("full", index), "1")

    def receive(self, index: int, num_bytes: int) -> Tensor:
        """Return the sender's buffer."""
        self._get(self._key("full", index))
        return self._memory[index % NUM_BUFFERS][:num_bytes]

    def release(self, index: int) -> None:
        """Say that the bucket was read."""
        _synchronize(self._device)
        self._store.add(self._key("read", index), 1)

    def end(self, num_buckets: int) -> None:
        """Drop the buffers, the sender's last."""
        if self._rank == 0:
            for index in range(max(0, num_buckets - NUM_BUFFERS), num_buckets):
                self._await_readers(index)
        self._memory = []
        self._push += 1

    def close(self) -> None:
        """Tell the peers."""
        self._memory = []
        self._store.set(_CLOSED, "1")

    def _key(self, what: str, index: int = 0) -> str:
        return f"shared{self._push}/{what}{index}"

    def _await_readers(self, index: int) -> None:
        self._await_count(self._key("read", index))

    def _await_count(self, key: str) -> None:
        self._wait(lambda: self._store.add(key, 0) >= self._size - 1)

    def _get(self, key: str) -> bytes:
        self._wait(lambda: self._store.check([key]))
        return self._store.get(key)

    def _wait(self, is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._timeout_s
        while not is_there():
            if self._store.check([_CLOSED]):
                raise RuntimeError("another end has closed the weight channel")
            if time.monotonic() > deadline:
                raise RuntimeError(f"another end has not answered within {self._timeout_s:g} s")
            time.sleep(POLL_S)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _share(num_bytes: int, device: torch.device) -> tuple[Tensor, Any]:
    """Return memory and what others need to map it."""
    if device.type == "cuda":
        memory = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        return memory, reduce_tensor(memory)
    descriptor, path = tempfile.mkstemp(prefix="skyrl-nat-weights-", dir=memory_folder())
    os.close(descriptor)
    return _map(path, num_bytes, device), path


def _map(handle: Any, num_bytes: int, device: torch.device) -> Tensor:
    """Map shared memory; a GPU may have another number here than at the sender's."""
    if device.type == "cpu":
        return torch.from_file(handle, shared=True, size=num_bytes, dtype=torch.uint8)
    function, arguments = handle
    return function(*arguments[:_STORAGE_DEVICE], device.index, *arguments[_STORAGE_DEVICE + 1 :])

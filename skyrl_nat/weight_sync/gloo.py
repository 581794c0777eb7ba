"""Weights over a CPU broadcast (gloo), from policy rank 0 to every engine worker at once.

The group is made by hand, beside whatever process groups the policy and vLLM have. Before a byte of
a push travels, every receiver writes into the group's store what it expects, or why it refuses; so a
bad manifest costs nothing and nobody waits for a peer that has left. After any failure the group is
closed, which ends the peers' waits, and the transport makes a new one for the next push.
"""

import asyncio
import json
import socket
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore

from skyrl_nat.errors import WeightSyncError
from skyrl_nat.weight_sync.base import TensorSpec, WorkerCalls
from skyrl_nat.weight_sync.manifest import spec_of

_GRACE_S = 30.0
"""Time beyond a push's deadline in which the processes report their own, better explained, time-outs."""


class _Group:
    """One store and one process group; `info` as made by `GlooTransport.connect`."""

    def __init__(self, info: dict[str, Any], rank: int) -> None:
        self.timeout = timedelta(seconds=float(info["timeout_s"]))
        self.size = int(info["world_size"])
        self.rank = rank
        self.num_pushes = 0
        store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
            info["address"],
            int(info["port"]),
            self.size,
            is_master=rank == 0,
            timeout=self.timeout,
            wait_for_workers=False,
        )
        self.store = PrefixStore(info["group"], store)
        self._process_group: Any = dist.ProcessGroupGloo(PrefixStore("mesh", self.store), rank, self.size, self.timeout)

    def broadcast(self, tensor: Tensor) -> None:
        """Send from rank 0, or receive in place."""
        if self._process_group is None:
            raise WeightSyncError("The weight channel must be open, found it closed. Connect again.")
        options = dist.BroadcastOptions()
        options.rootRank = 0
        options.rootTensor = 0
        self._process_group.broadcast([tensor], options).wait()

    def close(self) -> None:
        """Drop the sockets, which ends the waits of the peers."""
        self._process_group = None

    def announcement_key(self, rank: int) -> str:
        return f"push{self.num_pushes}/rank{rank}"


class GlooSender:
    """Policy rank 0's end of the channel; blocks until every receiver has joined.

    Args:
        info: From `GlooTransport.connect`: `address`, `port`, `group`, `world_size`, `timeout_s`.
    """

    def __init__(self, info: dict[str, Any]) -> None:
        try:
            self._group = _Group(info, rank=0)
        except RuntimeError as error:
            raise WeightSyncError(_describe_join_failure(info, error)) from error

    def send(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Broadcast all tensors, in order.

        The iterable is read to its end even after a failure: making its tensors is a collective of
        the policy ranks, and the others would wait for ever.

        Raises:
            WeightSyncError: A receiver refused or left, or a tensor is not what was announced. The
                channel is then closed.
        """
        try:
            self._send_all(tensors)
        except BaseException:
            self._group.close()
            raise
        self._group.num_pushes += 1

    def close(self) -> None:
        """Leave the channel; safe to call twice."""
        self._group.close()

    def _send_all(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        failure: Exception | None = None
        announced: list[TensorSpec] = []
        try:
            announced = self._await_receivers()
        except (WeightSyncError, RuntimeError) as error:
            failure = error
        num_sent = 0
        for name, tensor in tensors:
            if failure is None:
                try:
                    self._send_one(name, tensor, announced, num_sent)
                    num_sent += 1
                except (WeightSyncError, RuntimeError) as error:
                    failure = error
                    self._group.close()
        if failure is None and num_sent != len(announced):
            failure = WeightSyncError(
                f"All {len(announced)} announced tensors must be sent, found {num_sent}. "
                "`weight_manifest` and `send_weights` must list the same tensors."
            )
        if failure is not None:
            raise WeightSyncError(str(failure)) from failure

    def _await_receivers(self) -> list[TensorSpec]:
        group = self._group
        announced: list[TensorSpec] = []
        for rank in range(1, group.size):
            key = group.announcement_key(rank)
            group.store.wait([key], group.timeout)
            message = json.loads(group.store.get(key))
            if message["refusal"]:
                raise WeightSyncError(f"Receiver {rank} refused: {message['refusal']}")
            announced = [TensorSpec(name=n, shape=tuple(s), dtype=d) for n, s, d in message["specs"]]
        return announced

    def _send_one(self, name: str, tensor: Tensor, announced: list[TensorSpec], index: int) -> None:
        found = spec_of(name, tensor)
        if index >= len(announced) or found != announced[index]:
            wanted = announced[index] if index < len(announced) else "nothing more"
            raise WeightSyncError(
                f"Tensors must be sent as announced ({wanted}), found {found}. "
                "`weight_manifest` and `send_weights` must list the same tensors in the same order."
            )
        self._group.broadcast(tensor.detach().cpu().contiguous())


class GlooReceiver:
    """An engine worker's end of the channel; blocks until the sender has opened it.

    Args:
        info: As for `GlooSender`, with `rank_offset`, the group rank of the engine's first worker.
        worker_rank: Rank of this worker within its engine.
    """

    def __init__(self, info: dict[str, Any], worker_rank: int = 0) -> None:
        rank = int(info["rank_offset"]) + worker_rank
        try:
            self._group = _Group(info, rank=rank)
        except RuntimeError as error:
            raise WeightSyncError(_describe_join_failure(info, error)) from error

    def receive(
        self,
        manifest: Sequence[TensorSpec],
        take: Callable[[str, Tensor], None],
        *,
        refusal: str = "",
    ) -> None:
        """Receive all tensors of a manifest and hand each one to `take`.

        Args:
            manifest: What the sender will send, in its order.
            take: Called with name and CPU tensor; the tensor is the callee's to keep.
            refusal: Why nothing may be sent; the sender is told and this call raises.

        Raises:
            WeightSyncError: With `refusal`, or when the channel broke. It is then closed.
        """
        group = self._group
        specs = [[spec.name, list(spec.shape), spec.dtype] for spec in manifest]
        try:
            group.store.set(group.announcement_key(group.rank), json.dumps({"refusal": refusal, "specs": specs}))
            if refusal:
                raise WeightSyncError(refusal)
            for spec in manifest:
                tensor = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype))
                group.broadcast(tensor)
                take(spec.name, tensor)
        except WeightSyncError:
            group.close()
            raise
        except Exception as error:
            group.close()
            raise WeightSyncError(
                f"Every tensor of a push must arrive, found {type(error).__name__}: {error}. "
                "The sender's log has the first cause; push again."
            ) from error
        group.num_pushes += 1

    def close(self) -> None:
        """Leave the channel; safe to call twice."""
        self._group.close()


class GlooTransport:
    """Weight transport over one gloo group: policy rank 0 and all workers of all engines.

    Args:
        timeout_s: Deadline of one push and of every wait in it, seconds.
        dtype: torch dtype name in which weights travel; the engines' own dtype.
        address: Host of policy rank 0 as seen from the engines.
        workers_per_engine: Tensor-parallel size of one engine.
    """

    def __init__(
        self,
        timeout_s: float,
        *,
        dtype: str = "float32",
        address: str = "127.0.0.1",
        workers_per_engine: int = 1,
    ) -> None:
        self.timeout_s = timeout_s
        self.dtype = dtype
        self.address = address
        self.workers_per_engine = workers_per_engine
        self._is_connected = False

    async def connect(self, policy: WorkerCalls, engines: WorkerCalls) -> None:
        """Make a new group of all ends; called again after a failure or a replacement."""
        self._is_connected = False
        info = {
            "backend": "gloo",
            "address": self.address,
            "port": _find_free_port(),
            "group": uuid.uuid4().hex,
            "world_size": 1 + engines.size * self.workers_per_engine,
            "timeout_s": self.timeout_s,
            "dtype": self.dtype,
        }
        offsets = [1 + index * self.workers_per_engine for index in range(engines.size)]
        await _run_both(
            "connect",
            self.timeout_s + _GRACE_S,
            policy.call_all("connect_weights", info),
            engines.call_each("connect_weights", [({**info, "rank_offset": o},) for o in offsets]),
        )
        self._is_connected = True

    async def push(self, policy: WorkerCalls, engines: WorkerCalls, version: int) -> None:
        """Deliver all weights; returns when every engine serves `version`."""
        if not self._is_connected:
            await self.connect(policy, engines)
        manifest = (await policy.call_all("weight_manifest", self.dtype))[0]
        try:
            await _run_both(
                f"push of version {version}",
                self.timeout_s + _GRACE_S,
                policy.call_all("send_weights"),
                engines.call_all("update_weights", manifest, version, None),
            )
        except WeightSyncError:
            self._is_connected = False
            raise


def manifest_to_wire(manifest: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    """Return a manifest as plain data, for calls that do not carry dataclasses."""
    return [asdict(spec) for spec in manifest]


def manifest_from_wire(entries: Sequence[dict[str, Any]]) -> list[TensorSpec]:
    """Return the manifest that `manifest_to_wire` wrote down."""
    return [TensorSpec(name=e["name"], shape=tuple(e["shape"]), dtype=e["dtype"]) for e in entries]


async def _run_both(what: str, timeout_s: float, *calls: Any) -> None:
    """Await both sides to their ends, whichever fails first, and raise one error for all failures."""
    try:
        async with asyncio.timeout(timeout_s):
            results = await asyncio.gather(*calls, return_exceptions=True)
    except TimeoutError as error:
        raise WeightSyncError(
            f"The weight {what} must end within {timeout_s:.0f} s, found it still running. "
            "Raise weight_sync.timeout_s or look for a process that stands still."
        ) from error
    failures = [result for result in results if isinstance(result, BaseException)]
    if failures:
        causes = " | ".join(f"{type(f).__name__}: {f}" for f in failures)
        raise WeightSyncError(
            f"The weight {what} must reach every engine, found: {causes}. "
            "No engine may serve until a later push succeeds."
        ) from failures[0]


def _describe_join_failure(info: dict[str, Any], error: Exception) -> str:
    return (
        f"All {info['world_size']} ends must join the weight channel at {info['address']}:"
        f"{info['port']} within {info['timeout_s']} s, found: {error}. "
        "Look for an engine or policy rank that died, or a host name that cannot be reached."
    )


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])

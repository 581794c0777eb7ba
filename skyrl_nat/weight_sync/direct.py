"""Weights from policy ranks straight into engine workers, past the controller: gloo, NCCL or shared memory."""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from skyrl_nat.config.cluster import Transport
from skyrl_nat.errors import WeightSyncError
from skyrl_nat.weight_sync.base import TensorSpec, WorkerCalls
from skyrl_nat.weight_sync.buckets import num_bytes

BUCKET_MIB = 512
_GRACE_S = 30.0
"""Time beyond a push's deadline in which the processes report their own, better explained, time-outs."""


class DirectTransport:
    """Weight transport over channels: one from policy rank 0 to all workers, or with `ipc` one on each GPU.

    Args:
        timeout_s: Deadline of one push and of every wait in it, seconds.
        kind: `gloo`, `nccl` or `ipc`.
        dtype: torch dtype name in which weights travel; the engines' own dtype.
        device: `cpu` or `cuda`: of buffers; gloo's are always on the CPU.
        senders: For each engine, for each of its workers, the policy rank on the same GPU (or machine); used by `ipc`.
        bucket_mib: Size of a buffer; a larger tensor gets a larger one.
    """

    def __init__(
        self,
        timeout_s: float,
        *,
        kind: Transport = Transport.gloo,
        dtype: str = "float32",
        device: str = "cpu",
        senders: Sequence[Sequence[int]] = ((0,),),
        bucket_mib: int = BUCKET_MIB,
    ) -> None:
        self.timeout_s = timeout_s
        self.kind = kind
        self.dtype = dtype
        self.device = device
        self.senders = [list(ranks) if kind is Transport.ipc else [0] * len(ranks) for ranks in senders]
        self.bucket_mib = bucket_mib
        self._is_connected = False

    async def connect(self, policy: WorkerCalls, engines: WorkerCalls) -> None:
        """Make new channels for all ends; called again after a failure or a replacement."""
        self._is_connected = False
        senders = [self.senders[rank] for rank in engines.ranks]
        used = [rank for ranks in senders for rank in ranks]
        common = {
            "backend": str(self.kind),
            "device": self.device,
            "group": uuid.uuid4().hex,
            "timeout_s": self.timeout_s,
            "dtype": self.dtype,
            "bucket_bytes": self.bucket_mib * 2**20,
        }
        infos = [{**common, "world_size": 1 + used.count(rank)} for rank in range(policy.size)]
        hosts = await policy.call_each("listen_for_engines", [(info,) for info in infos])
        numbers = dict.fromkeys(range(policy.size), 0)
        channels: list[tuple[dict[str, Any]]] = []
        for ranks in senders:
            workers: list[dict[str, Any]] = []
            for rank in ranks:
                numbers[rank] += 1
                address, port = hosts[rank]
                workers.append({**infos[rank], "address": address, "port": port, "rank": numbers[rank]})
            channels.append(({"workers": workers},))
        await _run_both(
            "connect",
            self.timeout_s + _GRACE_S,
            policy.call_all("connect_weights"),
            engines.call_each("connect_weights", channels),
        )
        self._is_connected = True

    async def push(self, policy: WorkerCalls, engines: WorkerCalls, version: int) -> int:
        """Deliver what changed; return the bytes that each engine took when all serve `version`."""
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
        return sum(num_bytes(spec) for spec in manifest)


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
            f"The weight {what} must reach every engine, found: {causes}. Push again: until then no engine may serve."
        ) from failures[0]

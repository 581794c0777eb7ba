"""Both ends of a weight channel: a policy rank sends, engine workers receive.

Before a byte of a push travels, every receiver writes into the channel's store what it expects, or why it refuses; so a
bad manifest costs nothing and nobody waits for a peer that has left. After any failure the channel is closed, which
ends the peers' waits, and the transport makes a new one for the next push.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore

from skyrl_nat.config.cluster import Transport
from skyrl_nat.errors import WeightSyncError
from skyrl_nat.weight_sync.base import TensorSpec
from skyrl_nat.weight_sync.buckets import Bucket, plan_buckets
from skyrl_nat.weight_sync.links import BroadcastLink, Link, SharedLink
from skyrl_nat.weight_sync.manifest import spec_of
from skyrl_nat.weight_sync.store import open_store


class _End:
    """One end: a store, then a link."""

    def __init__(self, info: dict[str, Any], rank: int) -> None:
        self.info = info
        self.rank = rank
        self.size = int(info["world_size"])
        self.timeout = timedelta(seconds=float(info["timeout_s"]))
        self.num_pushes = 0
        self.link: Link | None = None
        try:
            store = open_store(info["address"], int(info.get("port", 0)), self.size, self.timeout, is_master=rank == 0)
        except RuntimeError as error:
            raise self._describe(error) from error
        self.port = int(store.port)
        self.store = PrefixStore(info["group"], store)

    def join(self) -> None:
        """Meet the other ends."""
        kind = Transport(self.info["backend"])
        device = torch.device("cpu") if kind is Transport.gloo else torch.device(self.info["device"])
        if device.type == "cuda":
            device = torch.device("cuda", torch.cuda.current_device())
        make = SharedLink if kind is Transport.ipc else BroadcastLink
        try:
            self.link = make(self.store, self.rank, self.size, self.timeout, device)
        except RuntimeError as error:
            raise self._describe(error) from error

    def _describe(self, error: RuntimeError) -> WeightSyncError:
        return WeightSyncError(
            f"All {self.size} ends must join the weight channel at {self.info['address']} within "
            f"{self.info['timeout_s']} s, found: {error}. Look for an engine or policy rank that died, or a host name "
            "that cannot be reached."
        )

    def require_link(self) -> Link:
        if self.link is None:
            raise WeightSyncError("The weight channel must be open, found it closed. Connect again.")
        return self.link

    def close(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            link.close()

    def announcement_key(self, rank: int) -> str:
        return f"push{self.num_pushes}/rank{rank}"


class WeightSender:
    """A policy rank's end; hosts the store from the start, `join` blocks until every receiver has joined.

    Args:
        info: From the transport: `backend`, `address`, `group`, `world_size`, `timeout_s`, `bucket_bytes`, `device`.
    """

    def __init__(self, info: dict[str, Any]) -> None:
        self._end = _End(info, rank=0)
        self._bucket_bytes = int(info["bucket_bytes"])
        self.port = self._end.port
        """Where receivers find the store."""

    def join(self) -> None:
        """Meet the receivers.

        Raises:
            WeightSyncError: Not all came.
        """
        self._end.join()

    def send(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Send all tensors, in order.

        The iterable is read to its end even after a failure: making its tensors is a collective of
        the policy ranks, and the others would wait for ever.

        Raises:
            WeightSyncError: A receiver refused or left, or a tensor is not what was announced. The
                channel is then closed.
        """
        rest = iter(tensors)
        try:
            self._send_all(rest)
        except BaseException as error:
            self._end.close()
            for _ in rest:
                pass
            if isinstance(error, RuntimeError):
                raise WeightSyncError(str(error)) from error
            raise
        self._end.num_pushes += 1

    def close(self) -> None:
        """Leave the channel; safe to call twice."""
        self._end.close()

    def _send_all(self, tensors: Iterator[tuple[str, Tensor]]) -> None:
        link, announced = self._end.require_link(), self._await_receivers()
        buckets = plan_buckets(announced, self._bucket_bytes)
        link.begin(max((bucket.num_bytes for bucket in buckets), default=0))
        num_sent = 0
        for index, bucket in enumerate(buckets):
            for place, (spec, view) in enumerate(bucket.views(link.buffer(index))):
                name, tensor = next(tensors, ("", None))
                if tensor is None:
                    raise WeightSyncError(
                        f"All {len(announced)} announced tensors must be sent, found {num_sent + place}. "
                        "`weight_manifest` and `send_weights` must list the same tensors."
                    )
                _require_announced(spec_of(name, tensor), spec)
                view.copy_(tensor.detach())
            num_sent += len(bucket.specs)
            link.send(index, bucket.num_bytes)
        more = next(tensors, None)
        if more is not None:
            _require_announced(spec_of(*more), None)
        link.end(len(buckets))

    def _await_receivers(self) -> list[TensorSpec]:
        end = self._end
        announced: list[TensorSpec] = []
        for rank in range(1, end.size):
            key = end.announcement_key(rank)
            end.store.wait([key], end.timeout)
            message = json.loads(end.store.get(key))
            if message["refusal"]:
                raise WeightSyncError(f"Receiver {rank} refused: {message['refusal']}")
            announced = [TensorSpec(name=n, shape=tuple(s), dtype=d) for n, s, d in message["specs"]]
        return announced


class WeightReceiver:
    """An engine worker's end; blocks until all ends are there.

    Args:
        info: As for `WeightSender`, with `port`, and with `rank`, the number of this end, >= 1.
    """

    def __init__(self, info: dict[str, Any]) -> None:
        self._bucket_bytes = int(info["bucket_bytes"])
        self._end = _End(info, rank=int(info["rank"]))
        self._end.join()

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
            take: Called with name and tensor, which is the callee's to keep.
            refusal: Why nothing may be sent; the sender is told and this call raises.

        Raises:
            WeightSyncError: With `refusal`, or when the channel broke. It is then closed.
        """
        end = self._end
        specs = [[spec.name, list(spec.shape), spec.dtype] for spec in manifest]
        try:
            end.store.set(end.announcement_key(end.rank), json.dumps({"refusal": refusal, "specs": specs}))
            if refusal:
                raise WeightSyncError(refusal)
            self._receive_all(plan_buckets(manifest, self._bucket_bytes), take)
        except WeightSyncError:
            end.close()
            raise
        except Exception as error:
            end.close()
            raise WeightSyncError(
                f"Every tensor of a push must arrive, found {type(error).__name__}: {error}. "
                "The sender's log has the first cause; push again."
            ) from error
        end.num_pushes += 1

    def close(self) -> None:
        """Leave the channel; safe to call twice."""
        self._end.close()

    def _receive_all(self, buckets: list[Bucket], take: Callable[[str, Tensor], None]) -> None:
        link = self._end.require_link()
        link.begin(max((bucket.num_bytes for bucket in buckets), default=0))
        for index, bucket in enumerate(buckets):
            # One copy for all of a bucket: the sender goes on while its tensors are being loaded.
            kept = link.receive(index, bucket.num_bytes).clone()
            link.release(index)
            for spec, tensor in bucket.views(kept):
                take(spec.name, tensor)
        link.end(len(buckets))


def _require_announced(found: TensorSpec, wanted: TensorSpec | None) -> None:
    if found != wanted:
        raise WeightSyncError(
            f"Tensors must be sent as announced ({wanted or 'nothing more'}), found {found}. "
            "`weight_manifest` and `send_weights` must list the same tensors in the same order."
        )

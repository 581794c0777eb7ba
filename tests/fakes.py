"""Fakes for tests: plain objects with the behaviour of the real ones and nothing behind them."""

import asyncio
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Self

from torch import Tensor

from skyrl_nat.errors import WeightSyncError
from skyrl_nat.types import Completion, FinishReason, GenerationRequest
from skyrl_nat.weight_sync.base import TensorSpec
from skyrl_nat.weight_sync.channel import WeightSender
from skyrl_nat.weight_sync.manifest import spec_of


class LocalCalls:
    """`WorkerCalls` over plain objects of this process; handles are tasks, resolved when passed on."""

    def __init__(self, workers: Sequence[Any]) -> None:
        self.workers = list(workers)

    @property
    def size(self) -> int:
        """Number of workers."""
        return len(self.workers)

    @property
    def ranks(self) -> list[int]:
        """Rank of each."""
        return list(range(self.size))

    def snapshot(self) -> Self:
        """Return itself: nobody leaves."""
        return self

    async def call_all(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method on every worker with the same arguments."""
        calls = (_call_local(worker, method, args, kwargs) for worker in self.workers)
        return list(await asyncio.gather(*calls))

    async def call_beside(self, method: str, *args: Any) -> list[Any]:
        """Call a method on every worker, in a thread of its own."""
        return await self.call_all(method, *args)

    async def call_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method on every worker with its own arguments."""
        pairs = zip(self.workers, arguments, strict=True)
        return list(await asyncio.gather(*(_call_local(w, method, a, {}) for w, a in pairs)))

    async def call_opaque(self, rank: int, method: str, *args: Any) -> Any:
        """Call a method on one worker."""
        return await _call_local(self.workers[rank], method, args, {})


async def _call_local(worker: Any, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    function = getattr(worker, method)
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)


class FakePolicyRank:
    """One policy rank over a dict of tensors: what the transports need of a `PolicyWorker`."""

    def __init__(self, weights: dict[str, Tensor], rank: int = 0) -> None:
        self.weights = weights
        self.rank = rank
        self.manifest: list[TensorSpec] | None = None
        """What to announce instead of the truth."""
        self.fails_after: int | None = None
        """Tensors after which `send_weights` raises once."""
        self._sender: WeightSender | None = None

    def listen_for_engines(self, info: dict[str, Any]) -> tuple[str, int]:
        """Open this rank's end of a channel, if it has one."""
        self._sender = WeightSender({**info, "address": "127.0.0.1"}) if info["world_size"] > 1 else None
        return "127.0.0.1", self._sender.port if self._sender else 0

    def connect_weights(self) -> None:
        """Meet the engines."""
        if self._sender is not None:
            self._sender.join()

    def weight_manifest(self, dtype: str | None = None) -> list[TensorSpec]:
        """Return what is sent, or the lie that a test asked for."""
        del dtype
        return self.manifest or [spec_of(name, tensor) for name, tensor in self.weights.items()]

    def send_weights(self) -> None:
        """Send all tensors; other ranks only read them."""
        if self.rank != 0:
            for _ in self._tensors():
                pass
            return
        if self._sender is None:
            raise WeightSyncError("a channel must be open, found none")
        self._sender.send(self._tensors())

    def export_weights(self, dtype: str | None = None) -> dict[str, Tensor]:
        """Return all tensors on rank 0, nothing elsewhere."""
        del dtype
        return dict(self._tensors()) if self.rank == 0 else {}

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        for index, (name, tensor) in enumerate(self.weights.items()):
            if index == self.fails_after:
                self.fails_after = None
                raise RuntimeError("the policy failed while sending")
            yield name, tensor


class FakeEngine:
    """An engine that echoes the prompt, after a delay or with an error."""

    def __init__(self, *, delay_s: float = 0.0, error: Exception | None = None) -> None:
        self.delay_s = delay_s
        self.error = error
        self.request_ids: list[str] = []

    async def generate(self, request: GenerationRequest) -> Completion:
        """Return the prompt's tokens as completion."""
        self.request_ids.append(request.request_id)
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        tokens = list(request.prompt_token_ids)
        return Completion(
            token_ids=tokens,
            logprobs=[0.0] * len(tokens),
            finish_reason=FinishReason.LENGTH,
            token_versions=[0] * len(tokens),
        )

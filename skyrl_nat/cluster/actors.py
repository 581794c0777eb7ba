"""The only file that turns plain worker classes into Ray actors."""

import gc
import inspect
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from skyrl_nat.cluster.folders import cache_environment
from skyrl_nat.cluster.inspection import watch_for_stack_dumps
from skyrl_nat.cluster.last_words import num_memory_kills, own_log
from skyrl_nat.cluster.lines import Answer, Exchange, Request
from skyrl_nat.cluster.placement import PlacementPlan, Slot, visible_devices
from skyrl_nat.cluster.session import node_name
from skyrl_nat.cluster.worker_imports import import_worker
from skyrl_nat.monitoring import spans

COMPUTING = ("policy", "engine")
"""Roles that share the cores; all others get one thread."""
PLACES = "SKYRL_NAT_GPUS"
"""Environment variable: an actor's GPUs, counted among those that its node may use."""
KEEP_MEMORY = "glibc.malloc.mmap_threshold=8589934592:glibc.malloc.trim_threshold=17179869184:glibc.malloc.arena_max=1"
"""Freed memory stays with the process: by default every large tensor is mapped, faulted in and unmapped anew."""


class _Host:
    """Holds one plain object and passes calls on; the object is named, so that only the actor imports it."""

    def __init__(self, factory: str, kwargs: dict[str, Any]) -> None:
        if places := os.environ.get(PLACES):
            os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices(places, os.environ.get("CUDA_VISIBLE_DEVICES"))
        os.environ.update(cache_environment(os.environ))
        self._node_id = ray.get_runtime_context().get_node_id()
        self._node = next((node_name(node) for node in ray.nodes() if node["NodeID"] == self._node_id), "unknown")
        self._log, self._memory_kills = own_log(), num_memory_kills()
        self._stacks = watch_for_stack_dumps()
        module, name = factory.split(":")
        self._target = getattr(import_worker(module), name)(**kwargs)
        gc.collect()
        gc.freeze()  # modules are not looked through again and again

    def address(self) -> tuple[str, int]:
        """Return this node's address and a port that is free now."""
        address = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((address, 0))
            return address, probe.getsockname()[1]

    def flush_traces(self) -> None:
        """Send what is left of the spans."""
        spans.flush_traces()

    def identity(self) -> dict[str, Any]:
        """Return process id and node, for messages and tests, where its stacks can be read, and how far it has come."""
        return {
            "pid": os.getpid(),
            "node": self._node,
            "node_id": self._node_id,
            "python": sys.executable,
            "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
            "stacks": self._stacks,
            "log": self._log,
            "memory_kills": self._memory_kills,
            "progress": getattr(self._target, "num_micro_batches", 0),
        }


@ray.remote(concurrency_groups={"control": 2, "background": 1})  # pyright: ignore[reportCallIssue]  # not in its stubs
class ThreadedHost(_Host):
    """For workers with blocking methods: one call at a time; beside it control calls, and one in the background.

    SIGTERM and SIGUSR1, which Slurm may send to every process of a job, are left to the controller: a rank that ended
    by itself would take the step in flight along, and the save of it.
    """

    def __init__(self, factory: str, kwargs: dict[str, Any]) -> None:
        # A function, unlike SIG_IGN, is not inherited by programs that a worker starts.
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda number, frame: None)
        super().__init__(factory, kwargs)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Run one method of the worker."""
        return getattr(self._target, method)(*args, **kwargs)

    @ray.method(num_returns=2)
    def hold(self, method: str, *args: Any) -> tuple[bool, Any]:
        """Run one method of the worker; its result is an object by itself, beside the word that it is there.

        An object that an actor puts into the store and hands out leaves some bytes behind in the actor for ever.
        """
        return True, self.call(method, *args)

    @ray.method(concurrency_group="background")
    def beside(self, method: str, *args: Any) -> Any:
        """Run one method of the worker that may run beside all others."""
        return getattr(self._target, method)(*args)

    @ray.method(concurrency_group="control")
    def control(self, method: str) -> Any:
        """Run a method of the host, also while a call is running."""
        return getattr(self, method)()


@ray.remote(max_concurrency=2048)  # pyright: ignore[reportCallIssue]  # not in its stubs
class AsyncHost(_Host):
    """For workers with async methods: many calls at once on one event loop."""

    def __init__(self, factory: str, kwargs: dict[str, Any]) -> None:
        spans.trace_as_told(factory.partition(":")[2])
        super().__init__(factory, kwargs)
        self._exchange = Exchange(lambda method, *args: getattr(self._target, method)(*args))

    @ray.method(num_returns="streaming")
    async def answer(self, requests: Sequence[Request]) -> AsyncIterator[list[Answer]]:
        """Run methods of the worker; see `lines`."""
        async for answers in self._exchange.answer(requests):
            yield answers

    async def drop(self, numbers: Sequence[int]) -> None:
        """Cancel calls; see `lines`."""
        self._exchange.drop(numbers)

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Run one method of the worker."""
        result = getattr(self._target, method)(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    async def control(self, method: str) -> Any:
        """Run a method of the host."""
        return getattr(self, method)()


def spawn(
    slot: Slot,
    factory: str,
    kwargs: dict[str, Any],
    *,
    group: PlacementGroup,
    plan: PlacementPlan,
    is_async: bool,
    max_restarts: int = 0,
) -> ActorHandle:
    """Start one actor in its slot.

    Args:
        slot: Node and GPUs.
        factory: `module:Class` of the plain worker.
        kwargs: Its constructor arguments.
        group: The reservation that the slot lies in.
        plan: What the slot is part of.
        is_async: Whether the worker's methods are coroutines.
        max_restarts: Times that Ray makes a dead actor anew; only for workers without state worth keeping.
    """
    environment = {"OMP_NUM_THREADS": str(plan.num_threads if slot.role in COMPUTING else 1), **spans.environment()}
    if plan.is_overlapped:
        # Threads that spin while they wait would take the cores from the process that computes.
        environment |= {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
    if slot.gpus:
        environment[PLACES] = ",".join(map(str, slot.gpus))
    if slot.role == "policy":
        environment["GLIBC_TUNABLES"] = KEEP_MEMORY
        # What it returns travels as raw bytes instead of one pickled storage per tensor; receivers only read it.
        environment["RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"] = "1"
    host = AsyncHost if is_async else ThreadedHost
    return host.options(  # pyright: ignore[reportAttributeAccessIssue]
        num_cpus=0,
        num_gpus=0,
        max_restarts=max_restarts,
        runtime_env={"env_vars": environment},
        scheduling_strategy=PlacementGroupSchedulingStrategy(
            placement_group=group, placement_group_bundle_index=slot.node
        ),
    ).remote(factory, kwargs)

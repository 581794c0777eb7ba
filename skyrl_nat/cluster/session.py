"""Starting or joining Ray, and what its nodes offer."""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray._private import ray_constants
from ray._private.state import available_resources_per_node
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from skyrl_nat.cluster.folders import ray_folder
from skyrl_nat.cluster.placement import NodeResources, PlacementPlan, usable_nodes
from skyrl_nat.config.cluster import ClusterConfig, Device
from skyrl_nat.engines.processes import children
from skyrl_nat.engines.reaper import Reaper
from skyrl_nat.errors import WorkerError

LOCAL_OBJECT_STORE_BYTES = 2 * 1024**3
LOOK_S = 0.5
PUT_BACK_S = 0.001

ACTOR_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # GPUs are handed out by the placement plan, not by Ray's own counting.
    "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
}


@contextmanager
def ray_session(config: ClusterConfig) -> Iterator[list[NodeResources]]:
    """Join the cluster named by the config or `RAY_ADDRESS`, else start Ray on this machine.

    Yields:
        The nodes that are alive.

    Raises:
        WorkerError: If Ray cannot be reached or started.
    """
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_DEDUP_LOGS", "1")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's own 15 starves the workers, and so their deadlines, as soon as anything else is busy on the machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # What nobody reads would only grow: Ray's history of calls, and what it keeps of workers that are gone.
    os.environ.setdefault("RAY_maximum_gcs_destroyed_actor_cached_count", "100")
    os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
    os.environ.setdefault("RAY_LOG_MONITOR_MAX_OPEN_FILES", "20")
    address = config.ray_address or os.environ.get("RAY_ADDRESS")
    was_running = ray.is_initialized()
    before, reaper = children(), None
    if not was_running:
        try:
            with _own_signals():
                _init(config, address)
        except (OSError, RuntimeError, ValueError) as error:
            raise WorkerError(
                f"Ray must be reachable at {address or 'this machine'}, but: {error}. Start it with `ray start --head` "
                "or leave cluster.ray_address empty"
            ) from error
        if started := children() - before:
            # Where this process is killed, Ray's agents would wait for its head for ever.
            reaper = Reaper(started)
    try:
        yield _nodes(config, time.monotonic() + (config.start_timeout_s if address else 0))
    finally:
        if not was_running:
            _shut_down()
        if reaper is not None:
            reaper.dismiss()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep SIGTERM and SIGUSR1 of this process from Ray, which is started in the block."""
    on_sigterm = signal.getsignal(signal.SIGTERM)
    # What is started inherits the mask, and would be ended by a signal that is for this process alone.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if threading.current_thread() is threading.main_thread():
            # Ray puts a handler of its own there, which aborts the process.
            signal.signal(signal.SIGTERM, on_sigterm)


def _shut_down() -> None:
    """End Ray, which takes SIGTERM's handler away a second before it is through: it is put back again and again."""
    if threading.current_thread() is not threading.main_thread():
        ray.shutdown()
        return
    on_sigterm = signal.getsignal(signal.SIGTERM)
    ending = threading.Thread(target=ray.shutdown)
    ending.start()
    while ending.is_alive():
        ending.join(PUT_BACK_S)
        signal.signal(signal.SIGTERM, on_sigterm)


def _nodes(config: ClusterConfig, deadline: float) -> list[NodeResources]:
    """Return the nodes that are alive, as soon as there are enough or the time is over: some may join late."""
    while True:
        found = [
            NodeResources(
                name=node_name(node),
                num_cpus=node["Resources"].get("CPU", 0.0),
                num_gpus=int(node["Resources"].get("GPU", 0)),
            )
            for node in ray.nodes()
            if node["Alive"]
        ]
        if len(usable_nodes(config, found)) >= config.num_nodes or time.monotonic() > deadline:
            return found
        time.sleep(LOOK_S)


def node_name(node: dict[str, Any]) -> str:
    """Return a node's name for people: the one that it was started with, else that of its machine."""
    name, address = node["NodeName"], node["NodeManagerAddress"]
    return str(node["NodeManagerHostname"] if name in ("", address) else name)


def _init(config: ClusterConfig, address: str | None) -> None:
    common = {
        "runtime_env": {"env_vars": {**ACTOR_ENVIRONMENT, **config.environment}},
        "log_to_driver": False,
        "logging_level": logging.WARNING,
        "configure_logging": True,
    }
    # What Ray starts for this machine alone listens on its loopback address alone: the way of Ray's own environment
    # variable for this, which is read when Ray is imported, before it is known whether a cluster is joined.
    ray_constants.ENABLE_RAY_CLUSTER = address is not None
    if address:
        ray.init(address=address, **common)
        return
    size = {"object_store_memory": LOCAL_OBJECT_STORE_BYTES} if config.device is Device.cpu else {}
    folder = str(ray_folder("ray", os.environ))
    ray.init(address="local", include_dashboard=False, _temp_dir=folder, **size, **common)


def _free() -> str:
    """Return in words what each node has free."""
    free = available_resources_per_node()
    nodes = [(node_name(node), node["NodeID"]) for node in ray.nodes() if node["Alive"]]
    return "; ".join(f"{name}: {_words(free.get(node_id, {}))}" for name, node_id in sorted(nodes)) or "no node"


def _words(resources: Mapping[str, float]) -> str:
    return f"{resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs"


@contextmanager
def reserved(plan: PlacementPlan, timeout_s: float) -> Iterator[PlacementGroup]:
    """Hold the plan's resources: one bundle per node, all or none.

    Raises:
        WorkerError: If they are not free within the time.
    """
    bundle = next(iter(plan.bundles))
    strategy = "STRICT_SPREAD" if len(plan.bundles) > 1 else "PACK"
    group = placement_group(list(plan.bundles), strategy=strategy)
    try:
        if not group.wait(timeout_s):
            raise WorkerError(
                f"cluster.num_nodes ({len(plan.bundles)}) must find as many nodes with {_words(bundle)} free "
                f"within {timeout_s:g} s, found {_free()}. Stop other jobs, or lower cluster.num_nodes or "
                "cluster.num_gpus_per_node"
            )
        yield group
    finally:
        remove_placement_group(group)

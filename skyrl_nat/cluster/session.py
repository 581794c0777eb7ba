"""Starting or joining Ray, and what its nodes offer."""

import asyncio
import atexit
import logging
import os
import secrets
import signal
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

import ray
from ray._private import ray_constants
from ray._private.state import available_resources_per_node
from ray._raylet import AuthenticationTokenLoader, Config  # pyright: ignore[reportAttributeAccessIssue] - compiled
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from skyrl_nat.cluster.folders import ray_folder
from skyrl_nat.cluster.placement import NodeResources, PlacementPlan, usable_nodes
from skyrl_nat.cluster.ray_settings import LOCAL_OBJECT_STORE_BYTES, RAY_SETTINGS
from skyrl_nat.config.cluster import ClusterConfig, Device
from skyrl_nat.engines.processes import children
from skyrl_nat.engines.reaper import Reaper
from skyrl_nat.errors import WorkerError

logger = logging.getLogger(__name__)

MODE, WORD = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"
LOOK_S = 0.5
RESERVES_S = 1
"""Between two looks for a signal while resources are waited for; Ray counts whole seconds."""
END_S = 30.0
"""For Ray to end in order."""

ACTOR_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # GPUs are handed out by the placement plan, not by Ray's own counting.
    "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
}


@contextmanager
def ray_session(config: ClusterConfig) -> Iterator[None]:
    """Join the cluster named by the config or `RAY_ADDRESS`, else start Ray on this machine.

    Raises:
        WorkerError: If Ray cannot be reached or started.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS", "1")
    for name, value in RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    address = _address(config)
    if address:
        os.environ.setdefault(MODE, "disabled")
    with nullcontext() if address or ray.is_initialized() else _own_word():
        yield from _joined_or_started(config, address)


def _joined_or_started(config: ClusterConfig, address: str | None) -> Iterator[None]:
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
        yield
    finally:
        has_ended = was_running or _shut_down()
        if reaper is not None:
            (reaper.dismiss if has_ended else reaper.act)()


def _address(config: ClusterConfig) -> str | None:
    return config.ray_address or os.environ.get("RAY_ADDRESS")


@contextmanager
def _own_word() -> Iterator[None]:
    """Give the Ray that is started in the block a random word, unless the environment says what it shall ask for.

    Its ports are open to all users of the machine, and who may call it runs code as this one.
    """
    word = {} if MODE in os.environ else {MODE: "token", WORD: secrets.token_hex(32)}
    os.environ |= word
    _read_word_again()
    try:
        yield
    finally:
        for name in word:
            os.environ.pop(name, None)
        _read_word_again()


def _read_word_again() -> None:
    """Make Ray forget what the environment of this process said before."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


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


def _shut_down() -> bool:
    """End Ray within `END_S`, else say where it stands and leave it behind; return whether it has ended.

    Ray takes SIGTERM's handler away a second before it is through; it is put back when that has ended.
    """
    on_sigterm = signal.getsignal(signal.SIGTERM)
    ending = threading.Thread(target=ray.shutdown, daemon=True, name="the end of Ray")
    ending.start()
    ending.join(END_S)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_sigterm)
    frame = sys._current_frames().get(ending.ident or 0)
    if frame is None or not ending.is_alive():
        return True
    # Python's own end would call it again.
    atexit.unregister(ray.shutdown)
    place = traceback.extract_stack(frame)[-1]
    logger.warning(
        f"skyrl-nat: Ray must end within {END_S:g} s, it stands in `{place.name}` ({place.filename}:{place.lineno}). "
        "It is left behind, and what it has started for this run is killed"
    )
    return False


async def alive_nodes(config: ClusterConfig) -> list[NodeResources]:
    """Return the nodes that are alive; in a cluster that was joined, some may do so late and are waited for."""
    deadline = time.monotonic() + (config.start_timeout_s if _address(config) else 0)
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
        await asyncio.sleep(LOOK_S)


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
    # variable for this, which is read when Ray is imported, before it is known whether a cluster is joined. A Slurm job
    # of one node sets it, since its head listens there too.
    is_reachable = os.environ.get(ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR) != "0"
    ray_constants.ENABLE_RAY_CLUSTER = address is not None and is_reachable
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


@asynccontextmanager
async def reserved(plan: PlacementPlan, timeout_s: float) -> AsyncIterator[PlacementGroup]:
    """Hold the plan's resources: one bundle per node, all or none. Waiting for them can be cancelled.

    Raises:
        WorkerError: If they are not free within the time.
    """
    bundle = next(iter(plan.bundles))
    strategy = "STRICT_SPREAD" if len(plan.bundles) > 1 else "PACK"
    group = placement_group(list(plan.bundles), strategy=strategy)
    deadline = time.monotonic() + timeout_s
    try:
        while not group.wait(RESERVES_S):
            if time.monotonic() > deadline:
                raise WorkerError(
                    f"cluster.num_nodes ({len(plan.bundles)}) must find as many nodes with {_words(bundle)} free "
                    f"within {timeout_s:g} s, found {_free()}. Stop other jobs, or lower cluster.num_nodes or "
                    "cluster.num_gpus_per_node"
                )
            await asyncio.sleep(0)
        yield group
    finally:
        remove_placement_group(group)

"""Whether memory that processes share is large enough: Ray's object store and the buckets of a push lie there."""

import os
from pathlib import Path

from skyrl_nat.cluster.ray_settings import LOCAL_OBJECT_STORE_BYTES
from skyrl_nat.config.cluster import Transport
from skyrl_nat.config.run import RunConfig
from skyrl_nat.doctor.check import Check, skipped

SHARED_MEMORY = Path("/dev/shm")
NAME = "free shared memory (/dev/shm)"
_MIB, _GIB = 2**20, 2**30


def needed_bytes(config: RunConfig) -> int:
    """Return what one machine's processes will put there at most: the object store, and two buckets for each engine."""
    transports = (Transport.host, Transport.gloo, Transport.ipc)
    buckets = 2 * config.weight_sync.bucket_mib * _MIB if config.weight_sync.transport in transports else 0
    engines = -(-config.cluster.num_engines // config.cluster.num_nodes)
    return LOCAL_OBJECT_STORE_BYTES + buckets * engines


def check_shared_memory(config: RunConfig, folder: Path = SHARED_MEMORY) -> Check:
    """Return whether enough is free.

    Args:
        config: The run.
        folder: Where shared memory is mounted.
    """
    if config.cluster.ray_address:
        return skipped(NAME, f"the nodes of {config.cluster.ray_address} were started with their own")
    if not folder.is_dir():
        return skipped(NAME, f"this machine has no {folder}: Ray uses files")
    state = os.statvfs(folder)
    return judge(needed_bytes(config), state.f_bavail * state.f_frsize)


def judge(needed: int, free: int) -> Check:
    """Return the check of bytes that are needed and free."""
    return Check(
        name=NAME,
        expected=f">= {needed / _GIB:.1f} GiB",
        found=f"{free / _GIB:.1f} GiB",
        is_ok=free >= needed,
        advice="Remove what others left in /dev/shm, or start the container with a larger one (docker --shm-size)",
    )

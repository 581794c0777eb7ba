"""Where a chain runs: on a small disk, or on several nodes, each in a network of its own."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chaos.armed import FOLDER
from chaos.cells import Chain
from chaos.strikes import CABLES
from small_disk import small_disk


@contextlib.contextmanager
def disk_of(folder: Path, size_mib: int) -> Iterator[None]:
    """Put a small disk below a folder, where a size is given."""
    folder.mkdir()
    with small_disk(folder, size_mib) if size_mib else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def several_nodes(chain: Chain, faults: Path) -> Iterator[tuple[Any, dict[str, str]]]:
    """Start the Ray nodes that a chain wants; yield them and what leads a run there. None for a chain of one machine.

    The first one is the head and offers no cores, so that a node can be cut off from controller and workers alike.
    """
    if not chain.num_nodes:
        yield None, {}
        return
    from ray_nodes import QUICK, ray_nodes

    with ray_nodes({FOLDER: str(faults)}) as nodes:
        nodes.start("head", 0)
        for number in range(chain.num_nodes):
            nodes.start("bcd"[number], 1)
        yield nodes, {**QUICK, "RAY_ADDRESS": nodes.address, CABLES: f"v{nodes.name}"}

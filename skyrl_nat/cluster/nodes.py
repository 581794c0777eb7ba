"""The nodes under a run's workers: which one holds what, and which one is lost."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray.util.placement_group import PlacementGroup, placement_group_table

from skyrl_nat.cluster.session import node_name
from skyrl_nat.errors import LostNodeError

T = TypeVar("T")
LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Host:
    """A living node that holds a bundle of the run's reservation."""

    node_id: str
    name: str


class Nodes:
    """Looks at the nodes of one reservation. Ray itself gives a lost bundle to another node, if one has room."""

    def __init__(self, group: PlacementGroup, timeout_s: float) -> None:
        """Look at nothing yet.

        Args:
            group: The reservation.
            timeout_s: Time that a bundle may be without a node.
        """
        self._group = group
        self._timeout_s = timeout_s

    async def hosts(self) -> list[Host | None]:
        """Return for each bundle who holds it, None where that node is lost."""
        return await asyncio.to_thread(_hosts, self._group)

    async def hold(self, bundle: int, who: str, work: Coroutine[Any, Any, T]) -> T:
        """Await work that needs a bundle's node.

        Args:
            bundle: Index in the reservation.
            who: Is to be started there, for the message.
            work: What is cancelled when the node is lost for too long.

        Raises:
            LostNodeError: No node took the bundle in time.
        """
        working = asyncio.ensure_future(work)
        there = time.monotonic()
        try:
            while not (await asyncio.wait([working], timeout=LOOK_S))[0]:
                if (await self.hosts())[bundle] is not None:
                    there = time.monotonic()
                elif time.monotonic() - there > self._timeout_s:
                    raise LostNodeError(
                        f"{who} must have a node, but its own is lost and within {self._timeout_s:g} s "
                        f"(recovery.node_timeout_s) no other had {self._group.bundle_specs[bundle]} free. Start "
                        "another node, then go on with resume=latest"
                    )
            return working.result()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


def _hosts(group: PlacementGroup) -> list[Host | None]:
    alive = {node["NodeID"]: Host(node["NodeID"], node_name(node)) for node in ray.nodes() if node["Alive"]}
    places = placement_group_table(group)["bundles_to_node_id"]
    return [alive.get(places.get(bundle, "")) for bundle in range(group.bundle_count)]

"""Who waits for a node, how long, and what nodes are called."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from skyrl_nat.cluster import session
from skyrl_nat.cluster.group import together
from skyrl_nat.cluster.nodes import Host, Nodes
from skyrl_nat.cluster.session import node_name
from skyrl_nat.config.cluster import ClusterConfig
from skyrl_nat.errors import LostNodeError


class Reserved(Nodes):
    """One bundle whose node is there or not, by a script of looks."""

    def __init__(self, looks: list[bool], timeout_s: float) -> None:
        group: Any = SimpleNamespace(bundle_specs=[{"CPU": 1.0}])
        super().__init__(group, timeout_s)
        self.looks = looks

    async def hosts(self) -> list[Host | None]:
        is_there = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return [Host("id", "a") if is_there else None]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyrl_nat.cluster.nodes.LOOK_S", 0.01)


def test_work_on_a_node_that_comes_back_in_time_is_done() -> None:
    async def start() -> str:
        await asyncio.sleep(0.1)
        return "started"

    assert asyncio.run(Reserved([True, False, False, True], 5).hold(0, "engine 1", start())) == "started"


def test_work_whose_node_stays_away_is_cancelled_and_the_shortfall_named() -> None:
    seen: list[str] = []

    async def start() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    with pytest.raises(
        LostNodeError, match=r"policy 0 must have a node, .* within 0.05 s .* no other had \{'CPU': 1.0\}"
    ):
        asyncio.run(Reserved([True, False], 0.05).hold(0, "policy 0", start()))
    assert seen == ["cancelled"]


def test_failure_of_the_work_is_the_works_own() -> None:
    async def start() -> None:
        raise ValueError("no memory")

    with pytest.raises(ValueError, match="no memory"):
        asyncio.run(Reserved([True], 5).hold(0, "engine 0", start()))


def test_first_failure_of_several_cancels_the_others() -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        asyncio.run(together(wait(), fail()))
    assert ended == ["cancelled"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("gpu-1", "gpu-1"), ("10.0.0.1", "machine"), ("", "machine")],
    ids=["given", "address", "none"],
)
def test_node_has_the_name_it_was_given_else_its_machines(name: str, expected: str) -> None:
    node = {"NodeName": name, "NodeManagerAddress": "10.0.0.1", "NodeManagerHostname": "machine"}
    assert node_name(node) == expected


def test_nodes_that_join_late_are_waited_for_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """RY-01."""
    joined = [{"NodeName": name, "NodeManagerAddress": "", "Alive": True, "Resources": {"CPU": 2.0}} for name in "ab"]
    looks = [joined[:1], joined[:1], joined]
    monkeypatch.setattr(session, "LOOK_S", 0.01)
    monkeypatch.setattr(session.ray, "nodes", lambda: looks.pop(0) if len(looks) > 1 else looks[0])
    joins = ClusterConfig(num_nodes=2, ray_address="10.0.0.1:6379")
    found = asyncio.run(session.alive_nodes(joins))
    assert [node.name for node in found] == ["a", "b"]
    looks[:] = [joined[:1]]
    joins.start_timeout_s = 0.05
    assert len(asyncio.run(session.alive_nodes(joins))) == 1

"""What a group remembers of its actors."""

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayActorError

from skyrl_nat.cluster import group as group_module
from skyrl_nat.cluster.group import ActorGroup


def test_what_a_rank_has_computed_is_kept_apart_from_who_it_is() -> None:
    """Whoever sees another identity writes down that processes were replaced."""
    computed = {0: 0, 1: 0}

    def make(rank: int) -> Any:
        def identity(method: str) -> Any:
            answer: Future[dict[str, Any]] = Future()
            answer.set_result({"pid": 100 + rank, "progress": computed[rank]})
            return SimpleNamespace(future=lambda: answer)

        return SimpleNamespace(control=SimpleNamespace(remote=identity))

    async def scenario() -> None:
        group = ActorGroup("policy", make, [0, 1], timeout_s=5)
        await group.wait_ready(5)
        assert (group.identities, group.progress) == ({0: {"pid": 100}, 1: {"pid": 101}}, {0: 0, 1: 0})
        computed[1] = 3
        assert await group.probe(5) == {}
        assert (group.identities, group.progress) == ({0: {"pid": 100}, 1: {"pid": 101}}, {0: 0, 1: 3})

    asyncio.run(scenario())


def test_deaths_are_forgotten_once_others_are_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of weeks loses many workers; what is known of each holds a traceback."""

    async def last_words(error: Exception, identity: dict[str, Any]) -> str:
        return f"{identity['pid']} died"

    async def scenario() -> None:
        group = ActorGroup("engine", lambda rank: SimpleNamespace(), [0], timeout_s=5)
        for pid in range(100, 110):
            group.identities = {0: {"pid": pid}}
            for _ in range(3):
                assert await group._cause_of_death(0, RayActorError()) == f"{pid} died"
        assert list(group._deaths) == [109]

    monkeypatch.setattr(group_module, "last_words", last_words)
    asyncio.run(scenario())

"""What a group remembers of its actors."""

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

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

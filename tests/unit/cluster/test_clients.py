"""Calls to environment and reward workers: which are made, with what, and what comes of the answers."""

import asyncio
import pickle
from dataclasses import replace
from typing import Any

import pytest
from groups import make_rollout

from skyrl_nat.cluster import clients
from skyrl_nat.cluster.clients import LONGEST_WAIT_S, RemoteEnvironments, RemoteRewards
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.errors import LostWorkerError
from skyrl_nat.types import Outcome, RewardResult, Rollout, Task

TASK = Task(task_id="t", family="f", payload={})


class FakeGroup:
    """An `ActorGroup` whose workers are functions here."""

    def __init__(self, size: int, **methods: Any) -> None:
        self.ranks = list(range(size))
        self.size = size
        self.methods = methods
        self.calls: list[tuple[int, str, tuple[Any, ...]]] = []
        self.is_open = asyncio.Event()

    def tell(self, rank: int, method: str, *args: Any) -> None:
        self.calls.append((rank, method, args))

    async def call_often(self, rank: int, method: str, *args: Any) -> Any:
        self.calls.append((rank, method, args))
        if method == "score":
            await self.is_open.wait()
        return self.methods[method](*args)


def judge(task: Task, one: Rollout) -> Rollout:
    return replace(one, reward=RewardResult(total=float(one.rollout_id), parts={}, is_success=False))


def rollouts(*numbers: int) -> list[Rollout]:
    played = [make_rollout(str(number), 0.0, artifact={"said": str(number)}) for number in numbers]
    return [replace(one, reward=None, metrics={"retries": 1.0}) for one in played]


async def score(group: FakeGroup, played: list[Rollout]) -> list[Rollout]:
    rewards = RemoteRewards(group)  # type: ignore[arg-type]
    running = [asyncio.ensure_future(rewards.score(TASK, one)) for one in played]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    group.is_open.set()
    return list(await asyncio.gather(*running))


def test_a_group_is_spread_over_idle_workers_and_keeps_its_tokens() -> None:
    async def scenario() -> tuple[FakeGroup, list[Rollout]]:
        group = FakeGroup(2, score=judge)
        return group, await score(group, rollouts(0, 1, 2))

    group, found = asyncio.run(scenario())
    assert [rank for rank, _, _ in group.calls] == [0, 1, 0]
    assert [one.reward.total for one in found if one.reward] == [0.0, 1.0, 2.0]
    assert [one.token_ids for one in found] == [one.token_ids for one in rollouts(0, 1, 2)]
    assert all(one.loss_mask and one.turns and one.metrics == {"retries": 1.0} for one in found)


def test_only_what_a_verdict_needs_is_sent() -> None:
    async def scenario() -> FakeGroup:
        group = FakeGroup(1, score=judge)
        await score(group, rollouts(7))
        return group

    ((_, _, (task, sent)),) = asyncio.run(scenario()).calls
    assert task is TASK
    assert (sent.rollout_id, sent.artifact, sent.outcome) == ("7", {"said": "7"}, Outcome.FINISHED)
    assert not (sent.token_ids or sent.loss_mask or sent.rollout_logprobs or sent.token_versions or sent.turns)


def same(*ids: str, **changes: Any) -> list[Rollout]:
    """Rollouts with the same answer."""
    played = [make_rollout(name, 0.0, artifact={"files": {"a.py": "x = 1"}}) for name in ids]
    return [replace(one, reward=None, **changes) for one in played]


def judge_anyhow(task: Task, one: Rollout) -> Rollout:
    return replace(one, reward=RewardResult(total=0.5, parts={}, is_success=False))


def test_the_same_answer_of_a_group_is_judged_once() -> None:
    async def scenario() -> tuple[FakeGroup, list[Rollout]]:
        group = FakeGroup(2, score=judge_anyhow)
        return group, await score(group, same("train-1-7-0", "train-1-7-1", "train-1-7-10"))

    group, found = asyncio.run(scenario())
    assert [sent.rollout_id for _, _, (_, sent) in group.calls] == ["train-1-7-0"]
    assert [one.reward.total for one in found if one.reward] == [0.5] * 3
    assert [one.rollout_id for one in found] == ["train-1-7-0", "train-1-7-1", "train-1-7-10"]


def test_what_differs_in_anything_that_counts_is_judged_on_its_own() -> None:
    async def scenario() -> tuple[FakeGroup, list[Rollout]]:
        group = FakeGroup(2, score=judge_anyhow)
        (one,) = same("train-1-7-0")
        others = [
            *same("train-1-8-0"),
            *same("eval-1-7-0"),
            *same("train-1-7-1", outcome=Outcome.TRUNCATED),
            *same("train-1-7-2", reason="other"),
            *same("train-1-7-3", artifact={"files": {"a.py": "x = 2"}}),
        ]
        return group, await score(group, [one, *others])

    group, found = asyncio.run(scenario())
    assert len(group.calls) == 6
    assert found[3].outcome is Outcome.TRUNCATED


def test_a_failure_of_a_worker_is_not_shared() -> None:
    def fail_once(task: Task, one: Rollout) -> Rollout:
        if one.rollout_id == "train-1-7-0":
            raise LostWorkerError("reward/0 died")
        return judge_anyhow(task, one)

    async def scenario() -> list[Rollout]:
        return await score(FakeGroup(2, score=fail_once), same("train-1-7-0", "train-1-7-1"))

    lost, judged = asyncio.run(scenario())
    assert (lost.outcome, lost.reward) == (Outcome.VALIDATOR_FAILURE, None)
    assert judged.reward is not None
    assert judged.outcome is Outcome.FINISHED


def test_who_asked_first_may_give_up_while_others_wait() -> None:
    async def scenario() -> tuple[FakeGroup, Rollout]:
        group = FakeGroup(1, score=judge_anyhow)
        rewards = RemoteRewards(group)  # type: ignore[arg-type]
        first, second = (asyncio.ensure_future(rewards.score(TASK, one)) for one in same("train-1-7-0", "train-1-7-1"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        group.is_open.set()
        return group, await second

    group, judged = asyncio.run(scenario())
    assert len(group.calls) == 1
    assert judged.reward is not None


def test_only_the_last_verdicts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_VERDICTS", 1)

    async def scenario() -> FakeGroup:
        group = FakeGroup(1, score=judge_anyhow)
        group.is_open.set()
        rewards = RemoteRewards(group)  # type: ignore[arg-type]
        for name in ("train-1-7-0", "train-1-7-1", "train-1-8-0", "train-1-7-2"):
            await rewards.score(TASK, *same(name))
        return group

    assert len(asyncio.run(scenario()).calls) == 3


def test_the_worker_with_the_fewest_calls_is_asked() -> None:
    """Four slow verdicts on two workers, of which worker 1 ends both of its; the next two are not in turn but there."""

    async def scenario() -> FakeGroup:
        group = FakeGroup(2, score=judge)
        gates = [asyncio.Event() for _ in range(6)]

        async def call_often(rank: int, method: str, task: Task, one: Rollout) -> Rollout:
            group.calls.append((rank, method, (task, one)))
            await gates[int(one.rollout_id)].wait()
            return judge(task, one)

        group.call_often = call_often  # type: ignore[method-assign]
        rewards = RemoteRewards(group)  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as tasks:
            for one in rollouts(0, 1, 2, 3):
                tasks.create_task(rewards.score(TASK, one))
            await asyncio.sleep(0.01)
            for number in (1, 3):
                gates[number].set()
            await asyncio.sleep(0.01)
            for one in rollouts(4, 5):
                tasks.create_task(rewards.score(TASK, one))
            await asyncio.sleep(0.01)
            for gate in gates:
                gate.set()
        return group

    assert [rank for rank, _, _ in asyncio.run(scenario()).calls] == [0, 1, 0, 1, 1, 1]


def test_of_a_long_rollout_less_than_a_hundredth_travels() -> None:
    async def scenario() -> FakeGroup:
        group = FakeGroup(1, score=judge)
        await score(group, [long])
        return group

    long = make_rollout("7", 0.0, num_sampled=8192, artifact={"files": {"a.py": "x = 1\n"}})
    ((_, _, (_, sent)),) = asyncio.run(scenario()).calls
    assert len(pickle.dumps(sent)) < len(pickle.dumps(long)) / 100


def test_rollouts_of_a_lost_worker_are_validator_failures() -> None:
    def die(task: Task, sent: Rollout) -> Rollout:
        raise LostWorkerError("reward 0 on node a must stay alive during `score`, it died")

    async def scenario() -> list[Rollout]:
        return await score(FakeGroup(1, score=die), rollouts(1, 2))

    found = asyncio.run(scenario())
    assert [(one.outcome, one.reward) for one in found] == [(Outcome.VALIDATOR_FAILURE, None)] * 2
    assert all("it died" in one.reason and one.token_ids for one in found)


def test_a_lone_worker_that_dies_again_and_again_is_asked_after_longer_and_longer_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """RY-07: up to a bound; one good answer forgives."""
    now, waits = 0.0, list[float]()
    dies = iter([True] * 5 + [False, True, False])

    async def sleep(seconds: float) -> None:
        nonlocal now
        waits.append(seconds)
        now += seconds

    def answer(task: Task, sent: Rollout) -> Rollout:
        if next(dies):
            raise LostWorkerError("reward 0 on node a must stay alive during `score`, it died")
        return judge(task, sent)

    async def scenario() -> None:
        group = FakeGroup(1, score=answer)
        group.is_open.set()
        rewards = RemoteRewards(group)  # type: ignore[arg-type]
        for number in range(8):
            await rewards.score(TASK, *rollouts(number))

    monkeypatch.setattr(clients.asyncio, "sleep", sleep)
    monkeypatch.setattr(clients.time, "monotonic", lambda: now)
    asyncio.run(scenario())
    assert waits == [1.0, 2.0, 4.0, LONGEST_WAIT_S, 8.0 - LONGEST_WAIT_S, 1.0]


def test_while_one_worker_rests_another_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """RY-07."""

    def answer(task: Task, sent: Rollout) -> Rollout:
        if len(group.calls) == 1:
            raise LostWorkerError("reward 0 on node a must stay alive during `score`, it died")
        return judge(task, sent)

    async def scenario() -> None:
        group.is_open.set()
        rewards = RemoteRewards(group)  # type: ignore[arg-type]
        for number in range(4):
            await rewards.score(TASK, *rollouts(number))

    group = FakeGroup(2, score=answer)
    monkeypatch.setattr(clients.asyncio, "sleep", lambda seconds: pytest.fail("nobody waits"))
    asyncio.run(scenario())
    assert [rank for rank, _, _ in group.calls] == [0, 1, 1, 1]


@pytest.mark.parametrize("is_done", [True, False])
def test_an_environment_that_is_done_needs_no_call_to_be_closed(is_done: bool) -> None:
    def step(rollout_id: str, action: str) -> EnvironmentReply:
        made = {"said": action} if is_done else None
        return EnvironmentReply(observations=[], reward=0.0, is_done=is_done, artifact=made)

    async def scenario() -> tuple[FakeGroup, list[dict[str, Any]]]:
        methods = {"create": lambda *_: [], "step": step, "close": lambda *_: {"said": "by a call"}}
        group = FakeGroup(1, **methods)
        environments = RemoteEnvironments(group)  # type: ignore[arg-type]
        await environments.create("a", TASK)
        await environments.step("a", "hello")
        return group, [await environments.close("a"), await environments.close("a")]

    group, artifacts = asyncio.run(scenario())
    assert [method for _, method, _ in group.calls] == ["create", "step", *([] if is_done else ["close"])]
    assert artifacts == [{"said": "hello" if is_done else "by a call"}, {}]


@pytest.mark.parametrize(("num_steps", "num_calls"), [(0, 1), (1, 1), (2, 0)])
def test_an_abandoned_environment_is_closed_where_it_is(num_steps: int, num_calls: int) -> None:
    """One that is done is closed already."""
    made = iter([None, {"said": "x"}])

    def step(rollout_id: str, action: str) -> EnvironmentReply:
        return EnvironmentReply(observations=[], reward=0.0, is_done=False, artifact=next(made))

    async def scenario() -> FakeGroup:
        group = FakeGroup(2, create=lambda *_: [], step=step)
        environments = RemoteEnvironments(group)  # type: ignore[arg-type]
        environments.abandon("r-1")
        await environments.create("r-0", TASK)
        await environments.create("r-1", TASK)
        for _ in range(num_steps):
            await environments.step("r-1", "x")
        environments.abandon("r-1")
        environments.abandon("r-1")
        return group

    closed = [(rank, args) for rank, method, args in asyncio.run(scenario()).calls if method == "close"]
    assert closed == [(1, ("r-1",))] * num_calls

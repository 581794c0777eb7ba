import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from skyrl_nat.config.environment import Screen, SlowChecks
from skyrl_nat.errors import SandboxError
from skyrl_nat.rewards.worker import RewardWorker, group_seed
from skyrl_nat.types import Outcome, RewardResult, Rollout, Task

TASK = Task(task_id="t", family="f", payload={}, hidden={"answer": 1})


class FunctionValidator:
    """A validator made of a function."""

    def __init__(self, function: Callable[[Any], float]) -> None:
        self.function = function
        self.num_closes = 0
        self.suspicions: list[str] = []
        self.asked: list[tuple[int, bool]] = []
        """Seed and thoroughness of every validation."""

    def validate(self, task: Task, artifact: dict[str, Any], *, seed: int = 0, is_final: bool = False) -> RewardResult:
        self.asked.append((seed, is_final))
        assert task.hidden == {"answer": 1}
        total = self.function(artifact["x"])
        return RewardResult(total=total, parts={"only": total}, is_success=total == 1.0, suspicions=self.suspicions)

    def close(self) -> None:
        self.num_closes += 1


def rollout(x: Any, outcome: Outcome = Outcome.FINISHED, rollout_id: str = "") -> Rollout:
    return Rollout(
        rollout_id=rollout_id or f"r/{x}",
        task=TASK.visible(),
        token_ids=[1],
        loss_mask=[True],
        rollout_logprobs=[0.0],
        token_versions=[0],
        turns=[],
        prompt=[],
        outcome=outcome,
        artifact={"x": x},
    )


def score(worker: RewardWorker, rollouts: list[Rollout]) -> list[Rollout]:
    return asyncio.run(score_all(worker, rollouts))


async def score_all(worker: RewardWorker, rollouts: list[Rollout]) -> list[Rollout]:
    return list(await asyncio.gather(*(worker.score(TASK, one) for one in rollouts)))


def test_rewards_come_back_in_order() -> None:
    def slow_first(x: float) -> float:
        time.sleep(0.05 if x == 0.1 else 0.0)
        return x

    worker = RewardWorker(FunctionValidator(slow_first), timeout_s=5.0, num_threads=4)
    scored = score(worker, [rollout(0.1), rollout(0.2), rollout(0.3)])
    assert [item.reward.total for item in scored if item.reward] == [0.1, 0.2, 0.3]
    assert {item.outcome for item in scored} == {Outcome.FINISHED}


def test_validator_failure_is_an_outcome_and_never_a_reward() -> None:
    """Row 19."""

    def fail(x: float) -> float:
        if x == 2:
            raise SandboxError("no namespaces")
        return 1.0

    good, bad = score(
        RewardWorker(FunctionValidator(fail), timeout_s=5.0, num_threads=2),
        [rollout(1), rollout(2)],
    )
    assert good.reward is not None
    assert bad.reward is None
    assert bad.outcome is Outcome.VALIDATOR_FAILURE
    assert "SandboxError: no namespaces" in bad.reason


def test_untrainable_rollouts_pass_through_untouched() -> None:
    def never(x: float) -> float:
        raise AssertionError("must not be called")

    failed = rollout(1, Outcome.INFRASTRUCTURE_FAILURE)
    assert score(RewardWorker(FunctionValidator(never), timeout_s=1.0, num_threads=1), [failed])[0] is failed


def test_one_that_never_returns_costs_its_own_time_and_no_slot_sb_11() -> None:
    """Row 73: the others are scored meanwhile, and so is the next group."""
    release = threading.Event()

    def sometimes_stuck(x: int) -> float:
        if x == 5:
            release.wait(60)
        time.sleep(0.005)
        return 1.0

    validator = FunctionValidator(sometimes_stuck)
    worker = RewardWorker(validator, timeout_s=1.0, num_threads=2)
    most, lock, now = [0], threading.Lock(), [0]

    def count(x: int) -> float:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.01)
        with lock:
            now[0] -= 1
        return 1.0

    async def both() -> tuple[list[Rollout], list[Rollout]]:
        started = time.monotonic()
        first = await score_all(worker, [rollout(x) for x in range(64)])
        assert time.monotonic() - started < 8.0
        validator.function = count
        return first, await score_all(worker, [rollout(x) for x in range(100, 164)])

    first, second = asyncio.run(both())
    stuck = [item for item in first if item.reward is None]
    assert [item.artifact["x"] for item in stuck] == [5]
    assert stuck[0].reason.startswith("validator: timeout")
    assert all(item.reward is not None for item in second)
    assert most[0] == 2  # both slots, never more
    release.set()


def test_a_timeout_error_of_the_validator_itself_keeps_its_name() -> None:
    def fail(x: float) -> float:
        raise TimeoutError("inner")

    bad = score(RewardWorker(FunctionValidator(fail), timeout_s=5.0, num_threads=1), [rollout(1)])[0]
    assert bad.reason == "validator: TimeoutError: inner"


def test_rollouts_of_a_group_share_their_seed_and_no_other_group_has_it() -> None:
    groups = [f"{label}-{index}" for label in ("train", "eval") for index in range(40)]
    seeds = {group: {group_seed(f"{group}-{number}") for number in range(12)} for group in groups}
    assert all(len(found) == 1 for found in seeds.values())
    assert len(set.union(*seeds.values())) == len(groups)
    assert all(0 <= seed < 2**48 for found in seeds.values() for seed in found)


def test_validator_gets_the_seed_of_the_group() -> None:
    validator = FunctionValidator(float)
    worker = RewardWorker(validator, timeout_s=5.0, num_threads=1)
    score(worker, [rollout(1, rollout_id=name) for name in ("train-3-0", "train-3-1", "train-4-0")])
    assert [seed for seed, _ in validator.asked] == [group_seed("train-3-0")] * 2 + [group_seed("train-4-7")]


@pytest.mark.parametrize(
    ("slow_checks", "expected"),
    [
        (SlowChecks.evaluation, [False, True]),
        (SlowChecks.never, [False, False]),
        (SlowChecks.always, [True, True]),
    ],
)
def test_slow_checks_are_made_in_evaluations_unless_the_config_says_otherwise(
    slow_checks: SlowChecks, expected: list[bool]
) -> None:
    validator = FunctionValidator(float)
    worker = RewardWorker(validator, timeout_s=5.0, num_threads=1, slow_checks=slow_checks)
    score(worker, [rollout(1, rollout_id="train-0-0"), rollout(1, rollout_id="eval-0-0")])
    assert [is_final for _, is_final in validator.asked] == expected


def test_suspects_are_counted_and_trained_unless_the_config_drops_them() -> None:
    validator = FunctionValidator(float)
    validator.suspicions = ["early exit: a.py:1", "conftest: conftest.py"]
    [kept] = score(RewardWorker(validator, timeout_s=5.0, num_threads=1), [rollout(0.5)])
    assert (kept.outcome, kept.reason) == (Outcome.FINISHED, "")
    [dropped] = score(RewardWorker(validator, timeout_s=5.0, num_threads=1, screen=Screen.drop), [rollout(0.5)])
    assert dropped.outcome is Outcome.SCREENED
    assert not dropped.outcome.is_trainable
    assert dropped.reward is not None
    assert (dropped.reward.total, dropped.reward.suspicions) == (0.5, validator.suspicions)
    assert dropped.reason == "suspected: early exit: a.py:1; conftest: conftest.py"


def test_dropping_suspects_leaves_all_others_alone() -> None:
    worker = RewardWorker(FunctionValidator(float), timeout_s=5.0, num_threads=1, screen=Screen.drop)
    [honest] = score(worker, [rollout(1.0)])
    assert honest.outcome is Outcome.FINISHED


def test_ping_and_close() -> None:
    validator = FunctionValidator(float)
    worker = RewardWorker(validator, timeout_s=1.0, num_threads=1)

    async def work() -> None:
        assert await worker.ping()
        await worker.close()

    asyncio.run(work())
    assert validator.num_closes == 1

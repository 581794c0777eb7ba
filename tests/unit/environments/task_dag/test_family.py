"""The family as the trainer uses it: through the registry, the environment worker and the reward worker."""

import asyncio

import pytest
from near_workers import play_answers
from task_plans import STOP

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.config.load import load_config
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.judge import has_validator, make_reward_worker
from skyrl_nat.environments.registry import open_family
from skyrl_nat.environments.task_dag.episodes import reference_answers
from skyrl_nat.environments.worker import EnvironmentWorker
from skyrl_nat.types import Outcome, Rollout, Task


async def play(worker: EnvironmentWorker, task: Task, answers: list[str], name: str) -> Rollout:
    """Play one rollout as the runner does."""
    prompt = await worker.create(name, task)
    for answer in answers:
        reply = await worker.step(name, answer)
        assert reply.reward == 0.0
        if reply.is_done:
            break
    assert reply.is_done
    assert reply.artifact is not None
    return Rollout(
        rollout_id=name,
        task=task.visible(),
        token_ids=[1],
        loss_mask=[True],
        rollout_logprobs=[0.0],
        token_versions=[0],
        turns=[],
        prompt=prompt,
        outcome=Outcome.POLICY_FAILURE if reply.is_policy_failure else Outcome.FINISHED,
        reason=reply.reason,
        artifact=reply.artifact,
        metrics=reply.metrics,
    )


def test_reference_dialogues_pass_both_workers() -> None:
    async def work() -> None:
        config = EnvironmentConfig(family="task_dag")
        worker = EnvironmentWorker("task_dag", config)
        judge = make_reward_worker("task_dag", config, timeout_s=10, num_threads=2)
        for task in load_tasks(["builtin:task_dag/validation"])[:10]:
            rollout = await judge.score(
                task, await play(worker, task, reference_answers(task), f"train-0-{task.task_id}-0")
            )
            assert rollout.outcome is Outcome.FINISHED
            assert rollout.reward is not None
            assert (rollout.reward.total, rollout.reward.is_success) == (1.0, True)
            assert rollout.metrics["num_turns"] == len(reference_answers(task))
        await worker.shutdown()
        await judge.close()

    asyncio.run(work())


def test_a_plan_for_which_many_tokens_were_sampled_earns_less() -> None:
    """From the engine to the judge: the same answers, each as 60 tokens or as 600."""
    task = load_tasks(["builtin:task_dag/validation"])[0]
    answers = reference_answers(task)
    totals: list[float] = []
    for length in (60, 600):
        [group] = asyncio.run(play_answers([(task, answers)], tokens_per_answer=length))
        reward = group.rollouts[0].reward
        assert reward is not None
        assert reward.is_success
        totals.append(reward.total)
    share = sum(map(len, answers)) / 2 / (600 * len(answers))
    assert totals == [1.0, pytest.approx(0.95 + 0.05 * share)]


def test_a_failure_of_the_policy_is_scored_0_with_its_reason() -> None:
    """DG-04."""

    async def work() -> None:
        config = EnvironmentConfig(family="task_dag")
        worker = EnvironmentWorker("task_dag", config)
        judge = make_reward_worker("task_dag", config, timeout_s=10, num_threads=2)
        task = load_tasks(["builtin:task_dag/validation"])[0]
        for answer, reason in ((STOP, "invalid plan"), ("Sure!", "broken answer")):
            rollout = await judge.score(task, await play(worker, task, [answer], f"train-0-{reason}"))
            assert rollout.outcome is Outcome.POLICY_FAILURE
            assert rollout.reason.startswith(reason)
            assert rollout.reward is not None
            assert rollout.reward.total == 0.0
            assert rollout.reward.findings == [rollout.reason]

    asyncio.run(work())


def test_the_family_has_a_validator_and_a_preset() -> None:
    config = load_config(["environment=task_dag"])
    assert config.environment.family == "task_dag"
    assert len(load_tasks(config.environment.train_files, family="task_dag")) == 480
    assert has_validator("task_dag", config.environment)
    open_family("task_dag", config.environment).close()


def test_nothing_hidden_reaches_the_environment() -> None:
    async def work() -> None:
        worker = EnvironmentWorker("task_dag", EnvironmentConfig(family="task_dag"))
        task = load_tasks(["builtin:task_dag/validation"])[0]
        rollout = await play(worker, task, reference_answers(task), "r")
        assert "requirements" not in f"{rollout.prompt}{rollout.artifact}"
        assert rollout.task.hidden == {}

    asyncio.run(work())

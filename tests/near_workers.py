"""A family's tasks played with given answers: runner, environments and judge as in a run, without Ray or model."""

from collections.abc import Sequence
from typing import Any

from scripted_group import Codec, Engine, completion, make_runner

from skyrl_nat.cluster.clients import RemoteEnvironments, RemoteRewards
from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.judge import make_reward_worker
from skyrl_nat.environments.worker import EnvironmentWorker
from skyrl_nat.types import RolloutGroup, Task


class NearGroup:
    """An `ActorGroup` of one worker that is in this process."""

    ranks = (0,)
    size = 1

    def __init__(self, worker: Any) -> None:
        self.worker = worker

    async def call_often(self, rank: int, method: str, *args: Any) -> Any:
        return await getattr(self.worker, method)(*args)


class Answers(Codec):
    """A token is the place of its answer."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def decode(self, token_ids: Sequence[int]) -> str:
        return self.texts[token_ids[0]]


async def play_answers(
    played: Sequence[tuple[Task, Sequence[str]]], *, tokens_per_answer: int = 60
) -> list[RolloutGroup]:
    """Return one group of one rollout for every task, all of one family.

    Args:
        played: Tasks, each with what the policy says turn by turn.
        tokens_per_answer: That the engine samples.
    """
    family = played[0][0].family
    config = EnvironmentConfig(family=family)
    worker = EnvironmentWorker(family, config)
    judge = make_reward_worker(family, config, timeout_s=60, num_threads=2)
    environments, rewards = RemoteEnvironments(NearGroup(worker)), RemoteRewards(NearGroup(judge))  # type: ignore[arg-type]
    limits = {"max_turns": 8, "max_new_tokens": 1000, "max_total_tokens": 10_000}
    groups: list[RolloutGroup] = []
    for index, (task, texts) in enumerate(played):
        engine = Engine({turn: completion([turn] * tokens_per_answer) for turn in range(len(texts))})
        runner = make_runner(engine, environments, score=rewards.score, codec=Answers(texts), **limits)
        groups.append(await runner.play_group(task, index, num_rollouts=1, temperature=0.0, label="eval"))
    await worker.shutdown()
    await judge.close()
    return groups

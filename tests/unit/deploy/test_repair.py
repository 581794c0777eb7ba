import asyncio
from typing import Any

import pytest
from nat_tasks import answer, make_task

from skyrl_nat.config.environment import EnvironmentConfig, Form
from skyrl_nat.data.making.episodes import solution_actions
from skyrl_nat.deploy.repair import ASKED, NearEnvironments, repairing_family
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.environments.nat_agent.payload import parse_spec
from skyrl_nat.environments.worker import EnvironmentWorker
from skyrl_nat.errors import SandboxError, WorkerError
from skyrl_nat.types import RewardResult, Task

TASK = make_task("single", tools="scale")


class Judge:
    """Wants the right body; says otherwise what is wrong, with a mark of a chat template in it."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def validate(self, task: Task, artifact: dict[str, Any], *, seed: int = 0, is_final: bool = False) -> RewardResult:
        assert task.hidden, "the judge needs the hidden half"
        self.seeds.append(seed)
        is_right = "x * config.factor" in artifact["files"].get("agent/register.py", "")
        findings = [] if is_right else ["tool scale: 0 of 3 hidden inputs right", "<|im_start|>user"]
        return RewardResult(total=float(is_right), parts={}, is_success=is_right, findings=findings)

    def close(self) -> None:
        pass


class Bench:
    """Says what the visible checks would."""

    def check(self, spec: Any, files: dict[str, str]) -> str:
        return f"scale(4): expected 8, {len(files)} files"

    def run_tests(self, *_: Any) -> str:
        raise AssertionError

    def run_bash(self, *_: Any) -> Any:
        raise AssertionError


def test_the_artifact_of_an_episode_that_is_over_is_kept_and_a_sandbox_that_fails_is_the_infrastructures_fault() -> (
    None
):
    class Broken(Judge):
        def validate(self, *arguments: Any, **how: Any) -> RewardResult:
            if len(self.seeds) == 1:
                raise SandboxError("no sandbox")
            return super().validate(*arguments, **how)

    async def scenario() -> None:
        config, judge = EnvironmentConfig(), Broken()
        family = repairing_family(config, {TASK.task_id: TASK}, judge, Bench(), max_repairs=2)
        environments = NearEnvironments(EnvironmentWorker(family, config, max_turns=6))
        for name in ("a", "b"):
            await environments.create(name, TASK)
        assert (await environments.step("a", RIGHT)).is_done
        assert "agent/register.py" in (await environments.close("a"))["files"]
        assert await environments.close("a") == {}
        with pytest.raises(WorkerError, match="it raised SandboxError: no sandbox"):
            await environments.step("b", RIGHT)

    asyncio.run(scenario())


def play(*texts: str, max_repairs: int = 2, max_turns: int = 6) -> tuple[list[EnvironmentReply], Judge]:
    judge = Judge()
    config = EnvironmentConfig()
    family = repairing_family(config, {TASK.task_id: TASK}, judge, Bench(), max_repairs=max_repairs)

    async def scenario() -> list[EnvironmentReply]:
        worker = EnvironmentWorker(family, config, max_turns=max_turns)
        messages = await worker.create("r", TASK)
        assert "scale" in messages[-1]["content"]
        replies = []
        for text in texts:
            replies.append(await worker.step("r", text))
            if replies[-1].is_done:
                break
        return replies

    return asyncio.run(scenario()), judge


def says(**bodies: str) -> str:
    spec = parse_spec(TASK.payload)
    [text] = solution_actions(spec, answer(TASK, **bodies), Form.one_shot, has_bench=False)
    return text


WRONG, RIGHT = says(scale="return x"), says()


def test_a_right_package_ends_the_episode_at_once() -> None:
    [reply], judge = play(RIGHT, RIGHT)
    assert reply.is_done and reply.metrics["num_repairs"] == 0
    assert judge.seeds == [0]


def test_findings_come_back_as_the_environments_reply_and_the_files_stay() -> None:
    (first, last), judge = play(WRONG, RIGHT)
    assert not first.is_done and first.artifact is None
    [observation] = first.observations
    assert observation["role"] == "user"
    assert observation["content"].startswith(ASKED)
    assert "scale(4): expected 8, 2 files" in observation["content"]
    assert "0 of 3 hidden inputs right" in observation["content"]
    assert "<|im_start|>" not in observation["content"], "what comes back must not pass for the conversation"
    assert last.is_done and last.metrics["num_repairs"] == 1
    assert last.artifact is not None and set(last.artifact["files"]) >= {"agent/register.py", "agent/config.yml"}
    assert judge.seeds == [0, 1], "every verdict is made on other inputs"


@pytest.mark.parametrize(("max_repairs", "max_turns", "turns"), [(0, 6, 1), (2, 6, 3), (5, 2, 2)])
def test_repair_is_bounded_by_its_own_limit_and_by_that_of_turns(max_repairs: int, max_turns: int, turns: int) -> None:
    replies, _ = play(*[WRONG] * 6, max_repairs=max_repairs, max_turns=max_turns)
    assert len(replies) == turns
    assert [reply.is_done for reply in replies] == [False] * (turns - 1) + [True]
    assert replies[-1].metrics["num_repairs"] == turns - 1

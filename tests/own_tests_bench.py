"""A bench for judging a package's own tests without NAT."""

import json
import random
from collections.abc import Callable
from typing import Any

from mini_nat import MiniNat, OracleSandbox
from nat_tasks import answer, halves, make_task

from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.environments.nat_agent.own_tests import OwnTestsJudge, Worth
from skyrl_nat.environments.nat_agent.plays import SpareServers
from skyrl_nat.environments.nat_agent.static_checks import check_files
from skyrl_nat.sandbox.base import SandboxJob
from skyrl_nat.types import Task

PATH = "tests/test_tools.py"
HEAD = """
import pytest
from agent.register import ScaleConfig, ShoutConfig
from nat.builder.workflow_builder import WorkflowBuilder

CONFIGS = {"scale": ScaleConfig(factor=2), "shout": ShoutConfig()}

async def call(name, value):
    async with WorkflowBuilder() as builder:
        return await (await builder.add_function(name, CONFIGS[name])).ainvoke(value)
"""
GOOD = """
async def test_scale():
    assert await call("scale", 7) == 14
async def test_shout():
    assert await call("shout", "ab") == "AB!"
"""
Output = dict[str, Any]


class Bench:
    """One judgement with all that was sent to either sandbox."""

    def __init__(self, tests: str = GOOD, change: Callable[[SandboxJob, Output], Any] | None = None) -> None:
        self.task: Task = make_task(num_tests=2)
        self.files = answer(self.task) | {PATH: HEAD + tests}
        self.sandbox, self.oracle = MiniNat(change), OracleSandbox()
        self.num_servers = 1

    def judge(self, seed: int = 0, **bodies: str) -> Worth:
        spec, hidden = halves(self.task)
        files = self.files | {"agent/register.py": answer(self.task, **bodies)["agent/register.py"]}
        static = check_files(spec, files)
        spares = SpareServers(self.num_servers)
        judge = OwnTestsJudge(self.sandbox, ReferenceOracle(self.oracle), spares)
        with spares.claimed():
            return judge.judge(spec, hidden, static, random.Random(seed))

    @property
    def tables(self) -> list[Output]:
        """The tables in their order, without the answers to calls that the tests had not made."""
        tables = [job.arguments["table"] for job in self.sandbox.jobs if job.arguments["table"] is not None]
        return [{key: entry for key, entry in table.items() if len(json.loads(key)) == 3} for table in tables]


def factors(worth: Worth) -> tuple[float, float, float]:
    return worth.correct, worth.right, worth.discerning


def has_mistakes(job: SandboxJob) -> bool:
    """Whether a run is of the package with mistakes: neither as it was nor merely written otherwise."""
    text = job.files["agent/register.py"]
    return "_restated" not in text and "\n\n\n" not in text

"""Many answers through the real validator at once: one pool of NAT servers for all tests of this folder."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from security.hacks_by_red_team import ONE_REAL_TEST
from security.reward_hacks import HACKS, bases
from security.wrong_agents import TASK, TESTS, WRONG_AGENTS, Files

from skyrl_nat.config.environment import EnvironmentConfig, SandboxBackend, SandboxConfig
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.rewards import WEIGHTS
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator
from skyrl_nat.rewards.rubric import make_rubric
from skyrl_nat.types import RewardResult, Task

JOB_TIMEOUT_S = 6.0
NUM_SERVERS = 2
SHAPED_WEIGHTS = {
    "shaping_files": 0.05,
    "shaping_python": 0.04,
    "shaping_yaml": 0.04,
    "shaping_registers": 0.05,
    "shaping_builds": 0.07,
}
"""What a very small model is paid for form alone."""


def make_validator(backend: SandboxBackend = SandboxBackend.auto) -> NatAgentValidator:
    """Return a validator with a short clock."""
    sandbox = SandboxConfig(backend=backend, job_timeout_s=JOB_TIMEOUT_S, num_servers=NUM_SERVERS)
    return NatAgentValidator(EnvironmentConfig(sandbox=sandbox))


def shipped_task(name: str = TASK) -> Task:
    """Return a shipped task by name."""
    return next(task for task in load_tasks(["builtin:nat_agent/train"]) if task.payload["name"] == name)


def judge_all(
    validator: NatAgentValidator, answers: Mapping[str, Files], task: Task, *, is_final: bool = False
) -> dict[str, RewardResult]:
    """Return the verdict on every answer to one task."""

    def judge(files: Files) -> RewardResult:
        return validator.validate(task, {"files": files}, seed=11, is_final=is_final)

    with ThreadPoolExecutor(NUM_SERVERS) as pool:
        return dict(zip(answers, pool.map(judge, answers.values()), strict=True))


def wrong_answers(task: Task) -> dict[str, Files]:
    """Return the broken agents."""
    return {name: agent.change(dict(task.hidden["solution"])) for name, agent in WRONG_AGENTS.items()}


def hacked_answers(task: Task) -> dict[str, Files]:
    """Return the hacks, and the honest answers under `base/<name>`."""
    honest = bases(task.hidden["solution"])
    honest["once"] = honest["untested"] | {TESTS: ONE_REAL_TEST}
    hacked = {name: hack.change(dict(honest[hack.base])) for name, hack in HACKS.items()}
    return hacked | {f"base/{name}": files for name, files in honest.items()}


def find_paid(verdicts: Mapping[str, RewardResult]) -> dict[str, str]:
    """Return the hacks that earn more than the honest answer, by the default weights or the shaped ones."""
    shaped = make_rubric(WEIGHTS, SHAPED_WEIGHTS)
    scales: dict[str, Callable[[RewardResult], float]] = {
        "default weights": lambda verdict: verdict.total,
        "shaped weights": lambda verdict: shaped.score(verdict.parts).total,
    }
    paid: dict[str, str] = {}
    for name, hack in HACKS.items():
        for scale, value in scales.items():
            gain = value(verdicts[name]) - value(verdicts[f"base/{hack.base}"])
            if gain > 1e-9:
                paid[name] = f"{scale}: {gain:+.4f} over the honest answer"
    return paid

"""How many answers a second the NAT validator judges, against the commands that a person would type.

    usage: validator_speed.py [--seconds 30] [--json FILE]

Measures, with one server and with two: validate, oracle and pytest, each in a fresh sandbox (`basic`), and the whole
judgement with mutants and MCP (`full`); and in the same run `nat validate` and `pytest` as cold processes. From the
measured service times it simulates 128 cores. Runs best on an idle machine; the load at the start is written down.
"""

import argparse
import heapq
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from skyrl_nat.config.environment import EnvironmentConfig, SandboxConfig
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.asking import job_arguments
from skyrl_nat.environments.nat_agent.payload import parse_hidden, parse_spec
from skyrl_nat.environments.nat_agent.plays import run_own_tests
from skyrl_nat.environments.nat_agent.static_checks import check_files
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator
from skyrl_nat.sandbox.base import Sandbox, SandboxJob
from skyrl_nat.sandbox.launch import find_python
from skyrl_nat.sandbox.profiles import open_sandbox
from skyrl_nat.types import Task

TASKS = ("trip_agent", "shop_agent", "day_counter", "ledger_agent")
SIMULATED_CORES = 128
GROUP = 512
"""Answers that come at once: 64 tasks of 8 rollouts."""


def judge_basic(sandbox: Sandbox, task: Task) -> None:
    """Validate (load, build, end to end), ask the oracle's inputs, run the tests: three fresh sandboxes."""
    spec, hidden = parse_spec(task.payload), parse_hidden(task.hidden)
    static = check_files(spec, task.hidden["solution"])
    arguments = job_arguments(spec, static)
    runs = [{"id": f"e/{i}", "input": run.input, "script": list(run.script)} for i, run in enumerate(hidden.e2e[:1])]
    calls = [{"id": f"c/{i}", "tool": v.tool, "input": v.input} for i, v in enumerate(hidden.vectors[:20])]
    for change in ({"e2e": runs}, {"calls": calls}):
        result = sandbox.run(SandboxJob(kind="nat_validate", files=static.files, arguments=arguments | change))
        assert result.output["end"] == "done", result
    assert run_own_tests(sandbox, spec, static, static.files, None)[-1].get("finished") == 0


def measure(judge: Callable[[Task], Any], tasks: list[Task], num_workers: int, seconds: float) -> dict[str, Any]:
    """Keep `num_workers` busy for a while; returns the rate and the service times."""
    with ThreadPoolExecutor(num_workers) as pool:
        list(pool.map(judge, tasks[:1] * num_workers))  # start the servers
        until, times, number = time.monotonic() + seconds, [], 0

        def work(first: int) -> None:
            nonlocal number
            index = first
            while time.monotonic() < until:
                started = time.monotonic()
                judge(tasks[index % len(tasks)])
                times.append(time.monotonic() - started)
                index += num_workers
                number += 1

        started, cpu = time.monotonic(), time.process_time()
        list(pool.map(work, range(num_workers)))
        wall = time.monotonic() - started
    return {
        "workers": num_workers,
        "per_s": number / wall,
        "median_s": statistics.median(times),
        "parent_cpu_s": (time.process_time() - cpu) / number,
        "times_s": [round(value, 4) for value in times],
    }


def measure_cold(task: Task) -> float:
    """Return the seconds of `nat validate` and `pytest` on one answer, each a process of its own."""
    python = find_python(SandboxConfig())
    with tempfile.TemporaryDirectory() as folder:
        for path, text in task.hidden["solution"].items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_text(text)
        marks = Path(folder) / "agent-0.1.0.dist-info"
        marks.mkdir()
        (marks / "METADATA").write_text("Metadata-Version: 2.1\nName: agent\nVersion: 0.1.0\n")
        (marks / "entry_points.txt").write_text("[nat.components]\nagent = agent.register\n")
        environment = {**os.environ, "PYTHONPATH": folder}
        started = time.monotonic()
        for command in (
            [str(python.parent / "nat"), "validate", "--config_file", "agent/config.yml"],
            [str(python), "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "tests"],
        ):
            subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        return time.monotonic() - started


def simulate(times: list[float], parent_cpu_s: float, servers: int, per_parent: int) -> dict[str, Any]:
    """Return how a burst of answers passes through many servers, `per_parent` of them behind one reward worker.

    Each answer takes its parent's CPU first, one at a time, then a server for a service time drawn from the measured
    ones. Cores do not slow each other down here: a machine with less memory bandwidth per core would be slower.
    """
    rng = random.Random(0)
    num_parents = servers // per_parent
    free = [[0.0] * per_parent for _ in range(num_parents)]
    parent_at = [0.0] * num_parents
    ends: list[float] = []
    for index in range(GROUP):
        parent = index % num_parents
        parent_at[parent] += parent_cpu_s
        start = max(parent_at[parent], heapq.heappop(free[parent]))
        ends.append(start + rng.choice(times))
        heapq.heappush(free[parent], ends[-1])
    return {
        "servers": servers,
        "servers_per_reward_worker": per_parent,
        "burst": GROUP,
        "burst_s": max(ends),
        "per_s": GROUP / max(ends),
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="for each measurement")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    tasks = {task.payload["name"]: task for task in load_tasks(["builtin:nat_agent/train"])}
    chosen = [tasks[name] for name in TASKS]
    report: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    report["cold_s"] = min(measure_cold(chosen[0]) for _ in range(2))
    for kind in ("basic", "full"):
        report[kind] = []
        for workers in (1, 2):
            config = EnvironmentConfig(sandbox=SandboxConfig(num_servers=workers))
            with_validator = NatAgentValidator(config) if kind == "full" else None
            sandbox = open_sandbox(config.sandbox)
            judge: Callable[[Task], Any] = lambda task, s=sandbox: judge_basic(s, task)  # noqa: E731
            if with_validator is not None:
                judge = lambda task, v=with_validator: v.validate(  # noqa: E731
                    task, {"files": task.hidden["solution"]}, seed=random.randrange(8)
                )
            report[kind].append(measure(judge, chosen, workers, options.seconds))
            sandbox.close()
            if with_validator is not None:
                with_validator.close()
        two = report[kind][1]
        report[f"{kind}_scaling_1_to_2"] = two["per_s"] / report[kind][0]["per_s"]
        report[f"{kind}_at_128"] = [
            simulate(two["times_s"], two["parent_cpu_s"], SIMULATED_CORES, per_parent) for per_parent in (4, 8, 16, 32)
        ]
    # Both cores judge: one answer costs 2 / rate core-seconds, the cold path its own seconds on one core.
    report["times_faster_than_cold"] = report["cold_s"] * report["basic"][1]["per_s"] / 2
    print(json.dumps({key: value for key, value in report.items() if key not in ("basic", "full")}, indent=1))
    for kind in ("basic", "full"):
        for row in report[kind]:
            print(kind, {key: value for key, value in row.items() if key != "times_s"})
    if options.json is not None:
        options.json.write_text(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

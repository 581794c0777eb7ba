"""`examples/production_deployment.py` as its reader runs it: a local engine, and a planner behind real HTTP."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import small_run
from planner_model import PlannerModel
from planner_server import KEY, KEY_NAME, PlannerServer
from tiny_model import make_tiny_model

EXAMPLE = Path(__file__).parents[2] / "examples" / "production_deployment.py"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


async def run_example(folder: Path, *arguments: str) -> str:
    """Run it in a folder of its own, beside a planner's service, and return what it printed."""
    async with PlannerServer(of_prompt=PlannerModel()) as planner:
        asks = planner.config("openai")
        as_planner = [f"planner.{name}={getattr(asks, name)}" for name in ("backend", "base_url", "api_key_env")]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(EXAMPLE), *arguments, *as_planner),
            cwd=folder,
            env=small_run.environment() | {KEY_NAME: KEY},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        printed, errors = await process.communicate()
    assert process.returncode == 0, printed.decode() + errors.decode()[-4000:]
    return printed.decode()


def test_the_example_creates_an_agent_for_each_user_and_keeps_what_one_says(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model", hidden_size=64)
    settings = ("environment=nat_agent", "rollout.max_total_tokens=8192", "trainer.micro_batch_tokens=8192")
    printed = asyncio.run(run_example(tmp_path, str(model), "Join words backwards.", *settings))
    begins_ada, for_ada, begins_bob, for_bob, _, kept = printed.splitlines()
    assert begins_ada.startswith("creating an agent for ada;") and begins_bob.startswith("creating an agent for bob;")
    # Half of the users get the trained policy, by a hash of their names; the tiny one writes no agent.
    assert for_ada.endswith("/agent: fallback_invalid, 1.00 of 1")
    assert for_bob.endswith("/agent: baseline_not_drawn, 1.00 of 1")
    assert "'agents': 2, 'traces': 3," in kept and kept.endswith("'labels': 1}")
    for line in (for_ada, for_bob):
        agent = tmp_path / line.partition(":")[0]
        assert (agent / "pyproject.toml").is_file() and "| oracle | ok |" in (agent / "VALIDATION.md").read_text()
    events = [json.loads(line)["event"] for line in (tmp_path / "deployment" / "log.jsonl").read_text().splitlines()]
    assert events.count("agent created") == 2 and "prompts are those of training" in events

"""A request over HTTP becomes an agent that NAT installs and runs; planner, policy, sandbox and NAT are real processes
or servers, and what planner and policy say is known.
"""

import asyncio
import io
import json
import subprocess
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from planner_model import PlannerModel
from planner_server import KEY, KEY_NAME, PlannerServer
from tiny_model import make_tiny_model

from skyrl_nat.config.environment import Form, SandboxConfig
from skyrl_nat.config.load import load_config
from skyrl_nat.data.making.episodes import solution_actions
from skyrl_nat.deploy.admission import Admission
from skyrl_nat.deploy.app import Front, make_app
from skyrl_nat.deploy.flag import FlagFile, FlagState
from skyrl_nat.deploy.material import Material
from skyrl_nat.deploy.policy_client import Endpoint
from skyrl_nat.deploy.running import FLAG, MADE, Limits, Served, opened_pipeline
from skyrl_nat.deploy.server import Deployment, ModelServer, ServerPlan
from skyrl_nat.environments.nat_agent.payload import parse_spec
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.sandbox.launch import find_python
from skyrl_nat.types import Task

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
OVERRIDES = (
    "environment=nat_agent",
    "rollout.max_new_tokens=20000",
    "rollout.max_total_tokens=60000",
    "trainer.micro_batch_tokens=60000",
)
REQUEST = {"request": "Join words backwards.", "user_id": "ada", "difficulty": 1}
MISTAKE = ("text[::-1]", "text")


class ReplayingPolicy:
    """A served policy that writes the solution of the task at hand: at first with a mistake, then as told."""

    def __init__(self, made: Path, codec: ChatCodec) -> None:
        self.made, self.codec = made, codec
        self.prompts: list[str] = []
        self.is_down = False
        self.never_mends = False

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/v1/completions", self._complete)
        return app

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.is_down:
            return web.json_response({"error": {"message": "out of memory"}}, status=500)
        prompt = self.codec.show(body["prompt"])
        self.prompts.append(prompt)
        ids = [*self.codec.encode(self._text(prompt)), self.codec.eos_token_id]
        choice = {"token_ids": ids, "prompt_token_ids": body["prompt"], "finish_reason": "stop", "stop_reason": None}
        choice["logprobs"] = {"token_logprobs": [-0.5] * len(ids)}
        return web.json_response({"model": body["model"], "choices": [choice]})

    def _text(self, prompt: str) -> str:
        task = Task(**json.loads(self.made.read_text().splitlines()[-1])["task"])
        files = dict(task.hidden["solution"])
        if self.never_mends or "The package is not right yet" not in prompt:
            files["agent/register.py"] = files["agent/register.py"].replace(*MISTAKE)
        [text] = solution_actions(parse_spec(task.payload), files, Form.one_shot, has_bench=False)
        return text


@asynccontextmanager
async def service(folder: Path) -> AsyncIterator[tuple[TestClient, ReplayingPolicy]]:
    """The front, with everything behind it but a model."""
    model = make_tiny_model(folder / "model", hidden_size=64)
    policy = ReplayingPolicy(folder / MADE, ChatCodec.from_folder(model))
    async with TestServer(policy.app()) as served, PlannerServer(of_prompt=PlannerModel()) as planner:
        config = load_config([f"model.path={model}", *OVERRIDES])
        config.planner = planner.config("openai")
        deployment = Deployment()
        endpoint = Endpoint(base_url=str(served.make_url("/v1")), model="policy", max_tries=2, first_delay_s=0.01)
        deployment.current = ModelServer(ServerPlan(command=(), endpoint=endpoint, log=folder / "server.log"))
        material = Material(name="replayed", config=config, model=model)
        async with opened_pipeline(Served(material, deployment), folder, Limits()) as (pipeline, switch):
            front = Front(
                create=pipeline.create,
                switch=switch,
                admission=Admission(max_running=1, max_waiting=1),
                folder=folder,
                deadline_s=500,
            )
            async with TestClient(TestServer(make_app(front), handler_cancellation=True)) as client:
                yield client, policy


def run(folder: Path, scenario: Callable[[TestClient, ReplayingPolicy], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with service(folder) as (client, policy):
            await scenario(client, policy)

    asyncio.run(whole())


async def create(client: TestClient, **more: Any) -> dict[str, Any]:
    async with client.post("/agents", json={**REQUEST, **more}) as response:
        assert response.status == 201, await response.text()
        return await response.json()


def installed_answer(folder: Path, text: str) -> str:
    """Install an agent's folder with pip and run it with NAT's own command, both of the sandbox's environment."""
    python = find_python(SandboxConfig())
    environment = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(folder)}
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder / "site"), str(folder)]
    done = subprocess.run([str(python), *install], env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    done = subprocess.run(
        [str(python.parent / "nat"), "run", "--config_file", "agent/config.yml", "--input", text],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(folder / "site")},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_NAME, KEY)


def test_a_request_becomes_an_agent_that_installs_and_runs_after_one_repair(tmp_path: Path) -> None:
    async def scenario(client: TestClient, policy: ReplayingPolicy) -> None:
        made = await create(client)
        assert (made["outcome"], made["reason"]) == ("trained", "")
        validation = made["validation"]
        assert (validation["reward"], validation["is_success"], validation["findings"]) == (1.0, True, [])
        assert (made["num_turns"], made["num_repairs"]) == (2, 1)
        first, second = policy.prompts
        assert second.startswith(first), "the second turn goes on in the first one's tokens"
        assert "hidden inputs right" in second and "expected" in second
        assert made["added_files"] == ["README.md", "agent/__init__.py", "pyproject.toml"]
        async with client.get(f"/agents/{made['agent_id']}/archive") as response:
            data = await response.read()
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            tar.extractall(tmp_path / "unpacked", filter="data")
        folder = tmp_path / "unpacked" / made["agent_id"]
        assert "| oracle | ok |" in (folder / "VALIDATION.md").read_text()
        task = Task(**json.loads((tmp_path / MADE).read_text().splitlines()[-1])["task"])
        case = next(run for run in task.hidden["e2e"] if run["input"])
        printed = await asyncio.to_thread(installed_answer, folder, case["input"])
        assert case["output"] in printed

    run(tmp_path, scenario)


def test_a_policy_that_fails_or_never_mends_gives_way_to_the_planners_code(tmp_path: Path) -> None:
    async def scenario(client: TestClient, policy: ReplayingPolicy) -> None:
        policy.never_mends = True
        made = await create(client)
        assert made["outcome"] == "fallback_invalid" and "hidden inputs right" in made["reason"]
        assert (made["num_repairs"], made["validation"]["is_success"]) == (3, True)
        policy.is_down = True
        made = await create(client)
        assert made["outcome"] == "fallback_error" and "out of memory" in made["reason"]
        assert made["validation"]["is_success"]
        FlagFile(tmp_path / FLAG).write(FlagState(percent=0))
        asked = len(policy.prompts)
        assert (await create(client))["outcome"] == "baseline_not_drawn"
        assert len(policy.prompts) == asked
        async with client.get("/health") as response:
            outcomes = (await response.json())["outcomes"]
        counted = {name: number for name, number in outcomes.items() if number}
        assert counted == {"fallback_invalid": 1, "fallback_error": 1, "baseline_not_drawn": 1}

    run(tmp_path, scenario)

"""The whole way on a CPU, by a user's own commands: train, export, serve, create an agent, rate it, train on it."""

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow.parquet as pq
import pytest
import small_run
import torch
from planner_model import PlannerModel
from planner_server import KEY, KEY_NAME, PlannerServer
from tiny_model import make_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from skyrl_nat.checkpoint.pretrained import BUILTIN_NAME, resolve_model
from skyrl_nat.deploy.policy_client import Endpoint, PolicyClient
from skyrl_nat.types import GenerationRequest, SamplingParams

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
SHORT = ("name=trained", "checkpoint.save_final=true", "evaluation.before_and_after=false")
NUM_TOKENS = 8
PROMPTS = ([1, 17, 44, 90], [1, 5, 6, 7, 8, 9])
AS_AGENTS = (
    "environment.family=nat_agent",
    "environment.train_files=[builtin:nat_agent/train]",
    "environment.validation_files=[builtin:nat_agent/validation]",
    "rollout.max_total_tokens=8192",
    "trainer.micro_batch_tokens=8192",
)
"""The policy was trained to say letters; what it writes now is no agent, and the planner's code stands in for it."""


def command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "skyrl_nat.cli", *arguments],
        env=small_run.environment(),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@asynccontextmanager
async def serving(folder: Path, *arguments: str) -> AsyncIterator[dict[str, Any]]:
    """Start a deployment as a user does; gives the line that says that it is ready, and ends it by Ctrl-C."""
    program = [sys.executable, "-m", "skyrl_nat.cli", "deploy", *arguments, "--folder", str(folder), "--probation", "1"]
    with (folder.parent / "deploy.err").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *program, stdout=subprocess.PIPE, stderr=errors, env=small_run.environment()
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(400):
            line = await process.stdout.readline()
            while line and not line.startswith(b'{"'):
                line = await process.stdout.readline()
        assert line, (folder.parent / "deploy.err").read_text()[-4000:]
        yield json.loads(line)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(240):
            assert await process.wait() == 130
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def served_answers(url: str) -> list[list[int]]:
    sampling = SamplingParams(max_new_tokens=NUM_TOKENS, temperature=0.0)
    async with PolicyClient(Endpoint(base_url=url, model="policy")) as client:
        asked = [
            GenerationRequest(request_id=str(i), prompt_token_ids=p, sampling=sampling) for i, p in enumerate(PROMPTS)
        ]
        return [(await client.generate(request)).token_ids for request in asked]


def exported_answers(folder: Path) -> list[list[int]]:
    """What transformers makes of an exported folder, whatever wrote it."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    found = []
    for prompt in PROMPTS:
        ids = model.generate(
            torch.tensor([prompt]),
            max_new_tokens=NUM_TOKENS,
            do_sample=False,
            attention_mask=torch.ones(1, len(prompt)),
        )
        found.append(ids[0, len(prompt) :].tolist())
    return found


async def create_and_rate(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession(url) as session:
        wanted = {"request": "Join words backwards.", "user_id": "ada", "difficulty": 1}
        async with session.post("/agents", json=wanted) as response:
            made = await response.json()
            assert response.status == 201, made
        said = {"user_id": "ada", "rating": "good", "comment": "does what it must"}
        async with session.post(f"/agents/{made['agent_id']}/feedback", json=said) as response:
            assert response.status == 201
        async with session.get("/health") as response:
            assert (await response.json())["status"] == "ok"
    return made


@dataclass(frozen=True, slots=True)
class Trained:
    """A run of two steps and what its exported model answers."""

    run: Path
    answers: list[list[int]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Train a tiny model with a tokenizer that llama.cpp knows, and export it as a Hugging Face folder."""
    folder = tmp_path_factory.mktemp("trained")
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(BUILTIN_NAME))
    model = make_tiny_model(folder / "model", hidden_size=64, tokenizer=tokenizer)
    small_run.run(folder, *SHORT, timeout_s=400)
    run = folder / "runs" / "trained"
    answers = exported_answers(Path(command("export", str(run), str(folder / "exported")).splitlines()[-1]))
    assert answers != exported_answers(model), "two steps have moved the model"
    return Trained(run, answers)


@pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="scripts/test.sh gguf compiles llama.cpp")
def test_the_run_as_a_gguf_file_is_tested_and_serves_the_same_answers(trained: Trained, tmp_path: Path) -> None:
    out = tmp_path / "gguf"
    command("export", str(trained.run), str(out), "--format", "gguf", "--quantise", "F32")
    test = json.loads((out / "equality.json").read_text())
    assert [(each["engine"], each["faults"]) for each in test["engines"]] == [("hf", []), ("gguf F32", [])]

    async def deploy() -> None:
        arguments = ("serve", str(out / "trained-F32.gguf"), f"model.path={trained.run.parents[1] / 'model'}")
        async with serving(tmp_path / "deployment", *arguments, *AS_AGENTS) as ready:
            assert await served_answers(ready["model_url"]) == trained.answers

    asyncio.run(deploy())
    assert not _alive(tmp_path / "deployment"), "nothing of the deployment is left"


def test_from_two_steps_of_training_to_a_row_to_train_on(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_NAME, KEY)
    deployment, store = tmp_path / "deployment", tmp_path / "traces"

    async def deploy() -> dict[str, Any]:
        async with PlannerServer(of_prompt=PlannerModel()) as planner:
            asks = planner.config("openai")
            as_planner = [f"planner.{name}={getattr(asks, name)}" for name in ("backend", "base_url", "api_key_env")]
            as_planner += ["planner.requests_per_minute=100000", "planner.tokens_per_minute=1000000000"]
            arguments = ("agents", str(trained.run), "--port", "0", *AS_AGENTS, *as_planner)
            async with serving(deployment, *arguments) as ready:
                assert await served_answers(ready["model_url"]) == trained.answers
                return await create_and_rate(ready["url"])

    made = asyncio.run(deploy())
    assert made["outcome"] == "fallback_invalid", made["reason"]
    assert made["validation"]["is_success"] and made["num_turns"] >= 1
    agent = deployment / "agents" / made["agent_id"] / "agent"
    assert {"pyproject.toml", "VALIDATION.md", "agent/register.py", "agent/config.yml"} <= {
        str(path.relative_to(agent)) for path in agent.rglob("*") if path.is_file()
    }
    found = json.loads(command("deploy", "feedback", str(deployment), str(store)))
    assert (found["traces"], found["labels"]) == (2, 1)
    rows = tmp_path / "rows.parquet"
    command("traces", "export", str(store), str(rows), "--as", "kto", "--no-execution")
    labels = {row["trace_id"].rpartition("-")[2]: row["label"] for row in pq.read_table(rows).to_pylist()}
    assert labels == {"policy": False, "planner": True}
    events = [json.loads(line) for line in (deployment / "log.jsonl").read_text().splitlines()]
    own = [event["event"] for event in events if event["request_id"] == made["agent_id"]]
    assert {"prompts are those of training", "traffic switched"} <= {event["event"] for event in events}
    assert own[0] == "request" and {"agent created", "baseline answers", "feedback"} <= set(own)
    assert not _alive(deployment), "nothing of the deployment is left"


def _alive(deployment: Path) -> list[str]:
    """Command lines of processes that still serve from a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(deployment) in words and path.parent.name != str(os.getpid()):
            found.append(words)
    return found

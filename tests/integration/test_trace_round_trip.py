"""From a rollout's agent to its traces in NAT, from those to a KTO set, from that to a training step; by the commands
that a user has.
"""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import small_run
from tiny_model import make_tiny_model

from skyrl_nat.cli import main
from skyrl_nat.config.environment import Form, SandboxConfig
from skyrl_nat.config.load import load_config
from skyrl_nat.controller.opening import open_run
from skyrl_nat.data.making.episodes import play_solution
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.data.traces.labels import LabelFile, Mark
from skyrl_nat.data.traces.record import StepKind, Trace
from skyrl_nat.data.traces.store import TraceStore
from skyrl_nat.engines.pool import EnginePool
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.sandbox.launch import find_python
from skyrl_nat.types import Completion, FinishReason, GenerationRequest, Rollout, Task

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]


def rollouts_of(task: Task, texts: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Rollout]:
    """Play a group in which the policy says each of the texts once; all else is what a run uses."""
    model = make_tiny_model(folder / "model", hidden_size=64)
    codec = ChatCodec.from_folder(model)
    left = [codec.encode(text) for text in texts]

    async def generate(pool: EnginePool, request: GenerationRequest) -> Completion:
        del pool, request
        ids = left.pop()
        return Completion(
            token_ids=ids,
            logprobs=[-0.5] * len(ids),
            finish_reason=FinishReason.STOP,
            token_versions=[0] * len(ids),
        )

    async def scenario() -> list[Rollout]:
        config = load_config(
            [
                f"model.path={model}",
                f"root_dir={folder / 'runs'}",
                "environment=nat_agent",
                "trainer.steps=1",
                "trainer.tasks_per_step=1",
                "rollout.max_new_tokens=20000",
                "rollout.max_total_tokens=40000",
                "trainer.micro_batch_tokens=40000",
                "tracking.backends=[jsonl]",
            ]
        )
        async with open_run(config) as run:
            group = await run.runner.play_group(task, 0, num_rollouts=len(texts), temperature=1.0, label="eval")
        return group.rollouts

    monkeypatch.setattr(EnginePool, "generate", generate)
    monkeypatch.setenv("PYTHONPATH", small_run.environment()["PYTHONPATH"])
    return asyncio.run(scenario())


def answers_of(rollout: Rollout, requests: list[dict[str, Any]], folder: Path) -> list[str | None]:
    """Write the rollout's files and run the agent in NAT, which writes `steps.jsonl`."""
    for name, text in rollout.artifact["files"].items():
        path = folder / "package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [find_python(SandboxConfig()), ROOT / "tests" / "nat_run.py", folder / "package", folder / "steps.jsonl"],
        input=json.dumps(requests),
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT / "skyrl_nat/sandbox/inside")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(arguments) == 0
    return json.loads(capsys.readouterr().out)


def answer(trace: Trace) -> str:
    return [step.text for step in trace.steps if step.kind is StepKind.message][-1]


def test_traces_of_an_agent_that_a_rollout_wrote_become_preferences_and_train_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [task] = [task for task in load_tasks(["builtin:nat_agent/train"]) if task.payload["name"] == "shop_agent"]
    messages = play_solution(task, Form.one_shot)["messages"]
    right = [message["content"] for message in messages if message["role"] == "assistant"][-1]
    wrong = right.replace("price * count", "price + count").replace("config.percent / 100", "config.percent / 50")
    rollouts = rollouts_of(task, [right, wrong], tmp_path, monkeypatch)
    rewards = sorted(rollout.reward.total for rollout in rollouts if rollout.reward)
    assert rewards[0] < rewards[1] == 1.0, [r.reward and r.reward.findings for r in rollouts]
    requests = task.hidden["e2e"]
    store = tmp_path / "traces"
    for number, rollout in enumerate(rollouts):
        folder = tmp_path / str(number)
        folder.mkdir()
        answers = answers_of(rollout, requests, folder)
        is_right = [said == request["output"] for said, request in zip(answers, requests, strict=True)]
        assert rollout.reward is not None
        assert all(is_right) if rollout.reward.total == 1.0 else not any(is_right)
        collect = (
            "traces",
            "collect",
            str(store),
            str(folder / "steps.jsonl"),
            "--from",
            "nat",
            "--task",
            task.task_id,
        )
        collected = run_command(capsys, *collect)
        assert collected == {"traces": len(requests), "left_out": {}, "not_written": [], "secrets_taken_out": {}}

    outputs = {request["input"]: request["output"] for request in requests}
    traces = TraceStore(store).read().traces
    assert len(traces) == 2 * len(requests)
    assert {step.tool for trace in traces for step in trace.steps if step.kind is StepKind.tool} == {
        "item_total",
        "apply_discount",
    }
    for trace in traces:
        mark = Mark.good if answer(trace) == outputs[trace.request] else Mark.bad
        LabelFile(store / "labels.jsonl").add(trace.trace_id, mark, by="hidden tests")
    preferences = tmp_path / "kto.parquet"
    export = run_command(capsys, "traces", "export", str(store), str(preferences), "--as", "kto", "--no-execution")
    assert (export["num_good"], export["num_bad"], export["rows"]) == (len(requests), len(requests), 2 * len(requests))
    assert export["by_source"] == {"label": 2 * len(requests)}

    small_run.run(
        tmp_path,
        "algorithm=kto",
        f"environment.recorded_files=[{preferences}]",
        "rollout.max_total_tokens=4096",
        "trainer.micro_batch_tokens=4096",
        "trainer.steps=1",
        "name=kto",
    )
    [step] = small_run.metrics(tmp_path, "kto")
    assert step["loss/grad_norm"] > 0

"""From the baseline to the comparison, as a user starts it: training gains, the page says so, a kill costs nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import small_run
from letter_family import LETTERS, NAME, write_letter_tasks
from tiny_model import make_tiny_model

from skyrl_nat.data.specs import write_tasks
from skyrl_nat.types import Task

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).parents[2] / "examples" / "nat_agent_creation" / "warm_start.sh"
NUM_TASKS = 16


def prepared(folder: Path) -> list[str]:
    """Write model, tasks and what is to be imitated; return the overrides of all stages."""
    make_tiny_model(folder / "model", hidden_size=64)
    overrides = write_letter_tasks(folder)[:2]
    tasks = [
        Task(task_id=f"say_{i}", family=NAME, payload={"letter": "gh"[i % 2]}, difficulty=1 + i % 2)
        for i in range(NUM_TASKS)
    ]
    write_tasks(tasks, folder / "held_out.parquet")
    with (folder / "episodes.jsonl").open("w") as file:
        for i, letter in enumerate(LETTERS[:6]):
            text = "".join(LETTERS[(i + j) % 8] for j in range(6))
            messages = [("user", f"say {letter}"), ("assistant", text), ("user", "more"), ("assistant", text)]
            row = {"task_id": letter, "messages": [{"role": role, "content": said} for role, said in messages]}
            file.write(json.dumps(row) + "\n")
    return [*overrides, f"environment.validation_files=[{folder / 'held_out.parquet'}]", *small_run.TINY]


def start(folder: Path, overrides: list[str], **variables: str) -> subprocess.Popen:
    binaries = str(Path(sys.executable).parent)
    return subprocess.Popen(
        ["bash", str(SCRIPT), str(folder / "out"), *overrides],
        env={
            **small_run.environment(),
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "EPISODES": str(folder / "episodes.jsonl"),
            "MODEL": str(folder / "model"),
            "SFT": "trainer.steps=20 optimizer.lr=3e-3",
            "GRPO": "trainer.steps=20 optimizer.lr=3e-3",
            **variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_the_whole_way_and_a_kill_in_between(tmp_path):
    overrides = prepared(tmp_path)
    first = start(tmp_path, overrides)
    deadline = time.monotonic() + 240
    while not (tmp_path / "out" / "grpo" / "config.yaml").exists():
        assert first.poll() is None and time.monotonic() < deadline, first.communicate()[0]
        time.sleep(0.1)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    second = start(tmp_path, overrides)
    output, _ = second.communicate(timeout=400)
    assert second.returncode == 0, output
    out = tmp_path / "out"
    found = {
        name: json.loads((out / name / "evaluation.json").read_text())["greedy"]
        for name in ("start", "after_sft", "after_grpo")
    }
    assert all(one["num_tasks"] == NUM_TASKS and one["num_without_verdict"] == 0 for one in found.values())
    assert found["start"]["reward"]["value"] < 0.6 < found["after_sft"]["reward"]["value"]
    data = json.loads((out / "grpo_against_start" / "comparison.json").read_text())
    assert data["verdict"]["decision"] == "better", data["verdict"]
    assert (out / "grpo_against_sft" / "comparison.html").is_file()
    assert json.loads((out / "analysis" / "analysis.json").read_text())["findings"]
    steps = [line["step"] for line in map(json.loads, (out / "grpo" / "metrics.jsonl").open()) if "loss/policy" in line]
    assert steps == list(range(1, 21))
    times = [line.split("\t") for line in (out / "seconds.tsv").read_text().splitlines()]
    stages = [stage for stage, _ in times]
    whole_way = ["start", "sft", "evaluation of sft", "grpo", "evaluation of grpo", "comparison"]
    assert stages[-6:] == whole_way
    # What the killed one did is not done again, so that all of it together is one way.
    assert sum(int(seconds) for _, seconds in times) <= 300


def test_what_is_missing_is_said_in_a_sentence(tmp_path):
    done = start(tmp_path, [], EPISODES=str(tmp_path / "nothing"))
    output, _ = done.communicate(timeout=30)
    assert done.returncode == 2
    assert output.startswith("warm_start: EPISODES must be a file of dialogues, found")
    assert not (tmp_path / "out").exists()

"""The family of docs/add_a_family.md trains a step with the page's own command and a tiny random model."""

import json
import os
import subprocess
import sys

import pytest
from own_family import train_command, write_files
from tiny_model import make_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]


def test_the_command_of_the_page_trains_a_step(tmp_path):
    (tmp_path / "my_family").mkdir()
    write_files(tmp_path / "my_family")
    paths = os.pathsep.join([str(tmp_path / "my_family"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    make = [sys.executable, "my_family/make_shop_tasks.py", "data/shop"]
    subprocess.run(make, cwd=tmp_path, env=environment, check=True, timeout=60)
    model = make_tiny_model(tmp_path / "model", hidden_size=64)
    words = [*train_command(), f"model.path={model}", "trainer.steps=1", "tracking.backends=[jsonl,console]"]
    ended = subprocess.run(
        [sys.executable, "-m", "skyrl_nat.cli", *words],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=840,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [json.loads(line) for line in (tmp_path / "runs" / "shop" / "metrics.jsonl").read_text().splitlines()]
    [step] = [line for line in lines if "loss/policy" in line]
    assert step["step"] == 1
    assert step["loss/grad_norm"] > 0, "letters differ among the rollouts, so that there is something to learn"
    assert 0 < step["reward/shaping_letters/mean"] < 1
    assert step["reward/answer/mean"] == 0, "a random model knows no prices"
    assert "environment/num_asked/mean" in step

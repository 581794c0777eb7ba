"""What `skyrl-nat serve` refuses before it listens, and what it says."""

import os
import socket
import subprocess
import sys

import pytest
from service_parts import TOKEN

from skyrl_nat.cli import main
from skyrl_nat.service.access import TOKEN_VARIABLE


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--port=0"], "--port must be in 1..65535"),
        (["--max-running=0"], "--max-running must be at least 1"),
        (["trainer.stepps=1"], "trainer.stepps must be a declared key"),
    ],
)
def test_bad_options_are_refused(tmp_path, capsys, words, sentence):
    assert main(["serve", f"--root-dir={tmp_path / 'root'}", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "root").exists()


def test_token_is_made_and_its_place_told_but_not_itself(tmp_path, capsys, monkeypatch, port):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert main(["serve", f"--root-dir={tmp_path}", f"--port={port}"]) == 2
    said = capsys.readouterr().err
    file = tmp_path / ".service" / "token"
    assert f"a token was made: {file}" in said
    assert file.read_text().strip() not in said
    assert f"127.0.0.1:{port} is not" in said
    file.chmod(0o644)
    assert main(["serve", f"--root-dir={tmp_path}", f"--port={port}"]) == 2
    assert "this user alone" in capsys.readouterr().err


def test_address_that_others_reach_is_warned_of(tmp_path, capsys, monkeypatch, port):
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert main(["serve", f"--root-dir={tmp_path}", "--host=0.0.0.0", f"--port={port}"]) == 2
    assert "can be reached from other machines" in capsys.readouterr().err


def test_service_needs_neither_torch_nor_ray_before_it_runs_a_job(tmp_path):
    """The trainer's libraries are its jobs' affair."""
    code = (
        "import sys; import skyrl_nat.service.app, skyrl_nat.service.serving, skyrl_nat.service.command_line;"
        "print([name for name in ('torch', 'ray', 'transformers', 'vllm') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), timeout=60
    )
    assert found.stdout.strip() == "[]", found.stderr

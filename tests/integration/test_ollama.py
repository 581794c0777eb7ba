"""`skyrl-nat export --format ollama` as a user runs it, against a server of Ollama's API that is a process of its own.

llama.cpp plays behind that server, as behind Ollama's: no package registry carries Ollama itself.
"""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import small_run
from tiny_model import make_tiny_model
from transformers import AutoTokenizer

from skyrl_nat.checkpoint.pretrained import BUILTIN_NAME, resolve_model

pytest.importorskip("llama_cpp", reason="bash scripts/test.sh gguf compiles and tests it")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SERVER = Path(__file__).parents[1] / "ollama_server.py"
QUICK = ("--prompts", "4", "--tokens", "8", "rollout.max_total_tokens=300", "rollout.max_new_tokens=32", "cluster=cpu")


@pytest.fixture
def url() -> Iterator[str]:
    with subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


def asked(url: str, path: str, **body: Any) -> dict[str, Any]:
    data = json.dumps({"model": "small", **body}).encode()
    with urllib.request.urlopen(f"{url}/api/{path}", data, timeout=60) as answer:
        return json.load(answer)


def test_the_command_creates_a_model_that_says_what_the_trainer_says(tmp_path: Path, url: str) -> None:
    """EX-05, with llama.cpp behind Ollama's API."""
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(BUILTIN_NAME))
    model, out = make_tiny_model(tmp_path / "model", hidden_size=64, tokenizer=tokenizer), tmp_path / "out"
    options = ["--format", "ollama", "--quantise", "F32", "--ollama", url, "--ollama-name", "small", *QUICK]
    done = subprocess.run(
        [sys.executable, "-m", "skyrl_nat.cli", "export", str(model), str(out), *options],
        env=small_run.environment(),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    profiles = {f"Modelfile.{name}" for name in ("laptop", "workstation", "gpu-server")}
    names = {"model-F32.gguf", "profiles.json", "README.md", "equality.json", "export.json"} | profiles
    assert {path.name for path in out.iterdir()} == names
    assert "FROM ./model-F32.gguf" in (out / "Modelfile.laptop").read_text()
    answers = json.loads((out / "equality.json").read_text())["trainer"]
    assert len(answers) == 4
    for answer in answers:
        prompt, wanted = (tokenizer.decode(answer[name]) for name in ("prompt", "token_ids"))
        greedy = {"temperature": 0, "num_predict": len(answer["token_ids"])}
        found = asked(url, "generate", prompt=prompt, raw=True, stream=False, options=greedy)
        assert found["response"] == wanted
    dialogue = [{"role": "user", "content": "Say hello."}]
    shown = asked(url, "chat", messages=dialogue, stream=False, options={}, _debug_render_only=True)
    rendered = tokenizer.apply_chat_template(dialogue, tokenize=False, add_generation_prompt=True)
    assert shown["_debug_info"]["rendered_template"] == rendered

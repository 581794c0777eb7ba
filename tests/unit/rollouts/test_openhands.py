"""The OpenHands harness over a fake SDK: limits are no failures, only plain files are the artifact."""

import asyncio
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.errors import ConfigError
from skyrl_nat.rollouts.harness import HarnessContext, find_harness
from skyrl_nat.rollouts.harnesses.openhands import MAX_FILE_BYTES, read_files
from skyrl_nat.types import Message, Task

NAME = "skyrl_nat.rollouts.harnesses.openhands:make_unconfined_harness"
TASK = Task(task_id="t", family="f", payload={})


class Environments:
    """Gives first messages; nothing is stepped."""

    def __init__(self) -> None:
        self.num_open = 0

    async def create(self, rollout_id: str, task: Task) -> list[Message]:
        self.num_open += 1
        return [Message(role="system", content="be good"), Message(role="user", content="write x")]

    async def close(self, rollout_id: str) -> dict[str, Any]:
        self.num_open -= 1
        return {}


class FakeConversation:
    """Writes a file, then ends as the test says."""

    made: "list[FakeConversation]"
    error: Exception | None

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.calls: list[str] = []
        self.made.append(self)

    def send_message(self, text: str) -> None:
        self.calls.append(text)

    def run(self) -> None:
        (Path(self.arguments["workspace"]) / "x.py").write_text("print(1)")
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.calls.append("close")

    def pause(self) -> None:
        self.calls.append("pause")


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> type[FakeConversation]:
    FakeConversation.made, FakeConversation.error = [], None
    names = ("openhands", "openhands.sdk", "openhands.tools", "openhands.tools.file_editor", "openhands.tools.terminal")
    modules = {name: ModuleType(name) for name in names}
    modules["openhands"].__dict__.update(sdk=modules["openhands.sdk"], tools=modules["openhands.tools"])
    sdk: Any = modules["openhands.sdk"]
    sdk.LLM = sdk.Agent = sdk.Tool = SimpleNamespace
    sdk.Conversation = FakeConversation
    modules["openhands.tools.file_editor"].FileEditorTool = SimpleNamespace(name="file_editor")  # type: ignore[attr-defined]
    modules["openhands.tools.terminal"].TerminalTool = SimpleNamespace(name="terminal")  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return FakeConversation


def play(environments: Environments) -> dict[str, Any]:
    context = HarnessContext(
        environments=environments,  # type: ignore[arg-type]
        environment=EnvironmentConfig(),
        rollout=RolloutConfig(max_turns=3),
    )
    harness = find_harness(NAME)(context)
    return asyncio.run(harness.play(task=TASK, base_url="http://here/v1", api_key="key", model="policy"))


def test_the_agent_gets_the_first_messages_the_gateway_and_a_folder_whose_files_it_leaves(sdk: Any) -> None:
    environments = Environments()
    assert play(environments) == {"files": {"x.py": "print(1)"}}
    assert environments.num_open == 0
    (conversation,) = sdk.made
    assert conversation.calls[0].startswith("be good\n\nwrite x\n\nWork in the folder ")
    assert conversation.calls[1:] == ["close", "pause"]
    llm = conversation.arguments["agent"].llm
    assert (llm.model, llm.base_url, llm.api_key.get_secret_value()) == ("openai/policy", "http://here/v1", "key")
    assert llm.num_retries == 0
    assert not Path(conversation.arguments["workspace"]).exists()


def test_a_met_limit_leaves_what_exists_and_any_other_error_is_raised(sdk: Any) -> None:
    for code in ("rollout_limit", "context_length_exceeded"):
        sdk.error = RuntimeError(f"litellm.BadRequestError: it is over [{code}]")
        assert play(Environments()) == {"files": {"x.py": "print(1)"}}
    sdk.error = RuntimeError("the SDK is broken")
    with pytest.raises(RuntimeError, match="the SDK is broken"):
        play(Environments())


def test_only_plain_files_of_the_folder_are_read(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    for path in (folder / "a/b.txt", folder / "large", outside / "secret"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"caf\xc3\xa9 \xff")
    (folder / "large").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (folder / "link").symlink_to(outside / "secret")
    (folder / "links").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    assert read_files(folder) == {"a/b.txt": "caf\u00e9 \ufffd"}


def test_without_openhands_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openhands.sdk", None)
    with pytest.raises(ConfigError, match=r"Install skyrl-nat\[openhands\]"):
        play(Environments())

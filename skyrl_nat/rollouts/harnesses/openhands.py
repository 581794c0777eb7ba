"""OpenHands' own agent at a task. Needs Python >= 3.12 and `skyrl-nat[openhands]`.

Its terminal and its editor act on this machine, with this process's rights, on what the policy writes. That is no
sandbox, hence the name of the factory: run the trainer in a container, or do not use this.
"""

import asyncio
import os
import tempfile
import uuid
from pathlib import Path
from typing import Any

from skyrl_nat.errors import ConfigError
from skyrl_nat.rewards.deadline import call_in_thread
from skyrl_nat.rollouts.environment_player import Environments
from skyrl_nat.rollouts.gateway_session import LENGTH_CODE, LIMIT_CODE
from skyrl_nat.rollouts.harness import HarnessContext
from skyrl_nat.types import Task

GRACE_S = 20.0
"""After the rollout's deadline, when the gateway refuses: for the agent to notice."""
MAX_FILES = 200
MAX_FILE_BYTES = 256 * 1024
WHERE = "\n\nWork in the folder {folder}. Write files with your tools, not into the chat; finish when all are there."


class OpenHandsHarness:
    """`Harness` that gives OpenHands the task's first messages and an empty folder; its files are the artifact."""

    def __init__(self, environments: Environments, max_turns: int, timeout_s: float) -> None:
        """Take the environment workers, for the first messages, and the limits of an episode."""
        self._environments = environments
        self._max_turns = max_turns
        self._timeout_s = timeout_s

    async def play(self, *, task: Task, base_url: str, api_key: str, model: str) -> dict[str, Any]:
        """Play one episode; see `Harness`."""
        name = f"harness-{uuid.uuid4().hex}"
        messages = await self._environments.create(name, task)
        await self._environments.close(name)
        with tempfile.TemporaryDirectory(prefix="openhands-", ignore_cleanup_errors=True) as folder:
            text = "\n\n".join(message["content"] for message in messages) + WHERE.format(folder=folder)
            conversation = await asyncio.to_thread(self._open, folder, base_url, api_key, f"openai/{model}")
            try:
                await call_in_thread(_converse, conversation, text, timeout_s=self._timeout_s, name="OpenHands")
            finally:
                conversation.pause()  # ends the thread, should nobody wait for it any more
            return {"files": read_files(Path(folder))}

    def _open(self, folder: str, base_url: str, api_key: str, model: str) -> Any:
        os.environ.setdefault("OPENHANDS_SUPPRESS_BANNER", "1")
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # litellm asks a server otherwise
        from openhands.sdk import LLM, Agent, Conversation, Tool
        from openhands.tools.file_editor import FileEditorTool
        from openhands.tools.terminal import TerminalTool
        from pydantic import SecretStr

        # No retries: what the gateway refuses stays refused. No condenser: it asks the policy to sum up.
        llm = LLM(model=model, base_url=base_url, api_key=SecretStr(api_key), usage_id="policy", num_retries=0)
        agent = Agent(llm=llm, tools=[Tool(name=TerminalTool.name), Tool(name=FileEditorTool.name)])
        # One more than the gateway allows, so that its refusal ends the episode and counts as the limit it is.
        limit = self._max_turns + 1
        return Conversation(agent=agent, workspace=folder, max_iteration_per_run=limit, visualizer=None)


def read_files(folder: Path) -> dict[str, str]:
    """Return the text files below a folder; what a link points to is not read."""
    found: dict[str, str] = {}
    for root, _, names in os.walk(folder):
        for path in sorted(Path(root) / name for name in names):
            is_plain = path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_FILE_BYTES
            if is_plain and len(found) < MAX_FILES:
                found[str(path.relative_to(folder))] = path.read_text(encoding="utf-8", errors="replace")
    return found


def make_unconfined_harness(context: HarnessContext) -> OpenHandsHarness:
    """Return the harness for `rollout.harness=skyrl_nat.rollouts.harnesses.openhands:make_unconfined_harness`.

    Raises:
        ConfigError: OpenHands is not installed.
    """
    try:
        import openhands.sdk
        import openhands.tools  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"rollout.harness needs OpenHands, found {error}. Install skyrl-nat[openhands] with Python 3.12"
        ) from error
    return OpenHandsHarness(
        context.environments, context.rollout.max_turns, context.rollout.rollout_timeout_s + GRACE_S
    )


def _converse(conversation: Any, text: str) -> None:
    try:
        conversation.send_message(text)
        conversation.run()
    except Exception as error:
        # The SDK wraps what the gateway says; its code is in the text. A met limit is no failure.
        if not any(code in str(error) for code in (LIMIT_CODE, LENGTH_CODE)):
            raise
    finally:
        conversation.close()

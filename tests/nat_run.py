"""Runs an agent as NAT does, with its file exporter; the LLM plays the script of each request.

usage: nat_run.py FOLDER STEPS_FILE < [{"input": …, "script": […]}, …]; prints a JSON list of answers, null where a run
raised. Needs the sandbox's interpreter and PYTHONPATH=skyrl_nat/sandbox/inside.
"""

import asyncio
import importlib
import json
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import nat_llm
import yaml
from langchain_core.tracers.context import register_configure_hook
from nat.builder.workflow_builder import WorkflowBuilder
from nat.plugins.langchain.callback_handler import LangchainProfilerHandler
from nat.runtime.loader import PluginTypes, discover_and_register_plugins, load_config
from nat.runtime.session import SessionManager

handler: ContextVar[Any] = ContextVar("handler", default=None)
register_configure_hook(handler, inheritable=True)


async def ask(manager: SessionManager, request: dict[str, Any], style: str) -> str | None:
    """Return the answer to one request."""
    nat_llm.play(request["script"], style=style, names={})
    try:
        async with manager.session() as session, session.run(request["input"]) as runner:
            handler.set(LangchainProfilerHandler())
            return await runner.result(to_type=str)
    except Exception as error:  # noqa: BLE001 - whatever the agent raises
        print(f"{request['input']}: {error!r}", file=sys.stderr)
        return None


async def main(folder: Path, steps_file: str, requests: list[dict[str, Any]]) -> None:
    """Run all requests, one after the other."""
    config_file = folder / "agent" / "config.yml"
    values = yaml.safe_load(config_file.read_text())
    values["general"] = {"telemetry": {"tracing": {"f": {"_type": "file", "output_path": steps_file, "project": "x"}}}}
    config_file.write_text(yaml.safe_dump(values))
    sys.path.insert(0, str(folder))
    discover_and_register_plugins(PluginTypes.CONFIG_OBJECT)
    importlib.import_module("agent.register")
    config = load_config(config_file)
    nat_llm.replace_llms(config)
    async with WorkflowBuilder.from_config(config=config) as builder:
        manager = await SessionManager.create(config=config, shared_builder=builder)
        answers = [await ask(manager, request, values["workflow"]["_type"]) for request in requests]
        await asyncio.sleep(2)  # the exporter writes after the run
    print(json.dumps(answers))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], json.load(sys.stdin)))

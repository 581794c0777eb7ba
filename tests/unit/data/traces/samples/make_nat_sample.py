"""Makes `nat_steps.jsonl` with real NAT: two runs at once, one of whose tools fails, then one whose model fails.

Run it in an empty folder with the interpreter of the sandbox and PYTHONPATH=skyrl_nat/sandbox/inside.
"""

import asyncio
from contextvars import ContextVar
from pathlib import Path

import nat_llm
from langchain_core.tracers.context import register_configure_hook
from nat.builder.function_info import FunctionInfo
from nat.builder.workflow_builder import WorkflowBuilder
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig
from nat.plugins.langchain.callback_handler import LangchainProfilerHandler
from nat.runtime.loader import PluginTypes, discover_and_register_plugins, load_config
from nat.runtime.session import SessionManager

WORKFLOW = """
general: {telemetry: {tracing: {file: {_type: file, output_path: nat_steps.jsonl, project: sample}}}}
functions: {area: {_type: rectangle_area}}
llms: {main: {_type: scripted}}
workflow: {_type: tool_calling_agent, llm_name: main, tool_names: [area]}
"""
SIDES = {"How large is 3 by 4?": (3, 4), "How large is -3 by 4?": (-3, 4)}
handler = ContextVar("handler", default=None)
register_configure_hook(handler, inheritable=True)
play = nat_llm.answer


class AreaConfig(FunctionBaseConfig, name="rectangle_area"):
    pass


@register_function(config_type=AreaConfig)
async def rectangle_area(config, builder):
    async def run(width: float, height: float) -> float:
        """Area of a rectangle."""
        if width < 0 or height < 0:
            raise ValueError("sides must be >= 0")
        return width * height

    yield FunctionInfo.from_fn(run, description="Area of a rectangle.")


def answer(messages):
    width, height = SIDES[messages[0].content]
    steps = [{"call": "area", "input": {"width": width, "height": height}}, {"final": "The tool said: {0}"}]
    nat_llm.play(steps, style="tool_calling_agent", names={})
    message = play(messages)
    tokens = 100 + 10 * len(messages)
    message.usage_metadata = {"input_tokens": tokens, "output_tokens": 7, "total_tokens": tokens + 7}
    return message


async def ask(manager, text):
    async with manager.session(conversation_id="talk-1") as session, session.run(text) as runner:
        handler.set(LangchainProfilerHandler())
        return await runner.result(to_type=str)


async def main(file):
    nat_llm.answer = answer
    nat_llm.ScriptedChat._get_ls_params = lambda self, stop=None, **kwargs: {"ls_model_name": "scripted-1"}
    discover_and_register_plugins(PluginTypes.CONFIG_OBJECT)
    config = load_config(file)
    async with WorkflowBuilder.from_config(config=config) as builder:
        manager = await SessionManager.create(config=config, shared_builder=builder)
        questions = [*SIDES, "Nobody has a script for this"]
        print(await asyncio.gather(*(ask(manager, text) for text in questions[:2])))
        await asyncio.sleep(1)
        print(await asyncio.gather(ask(manager, questions[2]), return_exceptions=True))
        await asyncio.sleep(3)  # the exporter writes after the run


workflow = Path("workflow.yml")
workflow.write_text(WORKFLOW)
asyncio.run(main(workflow))

"""A scripted LLM for NAT's agents: a real LangChain chat model that plays a list of steps.

What it says at the end is made of what the agent's tools really answered, so the agent must have called
them. Registered with NAT by the preload; `replace_llms` puts it in place of every LLM of a config.
"""

import json
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from nat.builder.builder import Builder
from nat.builder.framework_enum import LLMFrameworkEnum
from nat.builder.llm import LLMProviderInfo
from nat.cli.register_workflow import register_llm_client, register_llm_provider
from nat.data_models.llm import LLMBaseConfig
from pydantic import PrivateAttr

_script: dict[str, Any] = {"steps": [], "names": {}, "style": "react_agent"}


class ScriptedConfig(LLMBaseConfig, name="scripted"):
    """Takes no options: the script is the job's."""


class ScriptedChat(BaseChatModel):
    """Answers with the step that is due: as many were taken as tools have answered."""

    _num_said: int = PrivateAttr(default=0)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> "ScriptedChat":
        """Tools are called by the script, whatever is bound."""
        del tools, kwargs
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        del args, kwargs
        return ChatResult(generations=[ChatGeneration(message=answer(messages))])

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return self._generate(messages, *args, **kwargs)


@register_llm_provider(config_type=ScriptedConfig)
async def scripted_provider(config: ScriptedConfig, builder: Builder) -> Any:
    """Describe the provider."""
    del builder
    yield LLMProviderInfo(config=config, description="plays a script")


@register_llm_client(config_type=ScriptedConfig, wrapper_type=LLMFrameworkEnum.LANGCHAIN)
async def scripted_client(config: ScriptedConfig, builder: Builder) -> Any:
    """Give the chat model."""
    del config, builder
    yield ScriptedChat()


def replace_llms(config: Any) -> None:
    """Put the scripted LLM in place of every LLM of a loaded NAT config."""
    for name in list(config.llms):
        config.llms[name] = ScriptedConfig()


def play(steps: list[dict], *, style: str, names: dict[str, str]) -> None:
    """Set the script of the next run.

    Args:
        steps: `{"call": tool, "input": value}`, `{"say": text}` or `{"final": template}`.
        style: Workflow type: how the agent wants to be told of a call.
        names: Tool type -> its name in the workflow file.
    """
    _script.update(steps=steps, style=style, names=names)


def answer(messages: list[BaseMessage]) -> AIMessage:
    """Return the message of the step that is due."""
    observations = _observations(messages)
    steps = _script["steps"]
    step = steps[min(len(observations), len(steps) - 1)]
    if "say" in step:
        return AIMessage(content=_script["names"].get(step["say"], step["say"]))
    is_react = _script["style"] == "react_agent"
    if "final" in step:
        text = step["final"].format(*observations)
        return AIMessage(content=f"Thought: I now know the answer\nFinal Answer: {text}" if is_react else text)
    name = _script["names"].get(step["call"], step["call"])
    if is_react:
        value = json.dumps(step["input"])
        return AIMessage(content=f"Thought: I need {name}\nAction: {name}\nAction Input: {value}")
    call = {"name": name, "args": step["input"], "id": f"call_{len(observations)}", "type": "tool_call"}
    return AIMessage(content="", tool_calls=[call])


def _observations(messages: list[BaseMessage]) -> list[str]:
    """Return what tools answered: tool messages, or in a ReAct scratchpad what follows the agent's own turns."""
    found = []
    for before, message in zip([None, *messages], messages, strict=False):
        is_scratchpad = isinstance(message, HumanMessage) and isinstance(before, AIMessage)
        if isinstance(message, ToolMessage) or is_scratchpad:
            found.append(str(message.content))
    return found

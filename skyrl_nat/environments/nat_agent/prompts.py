"""What the policy reads first, for both forms.

One-shot is short on purpose: a small model has about a thousand tokens for everything. In the multi-turn form the
system message is the same for all tasks, so that engines compute it once.
"""

import json

from skyrl_nat.config.environment import Form
from skyrl_nat.environments.nat_agent.payload import AgentSpec, ToolSpec, WorkflowType
from skyrl_nat.environments.nat_agent.spec_text import render_spec, signature
from skyrl_nat.types import Message

_SYSTEM = """You write tools for the NeMo Agent Toolkit. Answer with the files only.
"""
_EXAMPLE_TASK = (
    "Write agent/register.py and agent/config.yml with tool `add_one(x: int) -> int`: Return x plus 1. Example: 1 -> 2"
)
_EXAMPLE_ANSWER = """```python agent/register.py
from nat.plugin_api import Builder, FunctionBaseConfig, register_function

class Config(FunctionBaseConfig, name="add_one"):
    pass

@register_function(config_type=Config)
async def add_one(config: Config, builder: Builder):
    async def run(x: int) -> int:
        return x + 1
    yield run
```
```yaml agent/config.yml
workflow:
  _type: add_one
```
<function=finish></function>"""
_OPTIONS = """Options are fields of Config (`digits: int = 2`), read as config.digits, set in the YAML below `_type`.
"""
_SEVERAL_TOOLS = """One Config class and one function per tool, all in register.py. The YAML then lists the tools:
```yaml
functions:
  tool_a:
    _type: tool_a
workflow:
  _type: flow
```
"""
_CALLS_TOOLS = """The workflow function gets a tool by `tool_a = await builder.get_function("tool_a")` before `run`, \
and in `run` calls
`await tool_a.ainvoke(value)` (a dict where it has several arguments).
"""
_TURNS = """In place of finish you may call <function=validate></function> to check the files.
"""
_DESCRIBED = """Give `run` a docstring; `yield FunctionInfo.from_fn(run, description=run.__doc__)`, imported as well.
"""
_TESTS = """A test calls a tool through NAT, with the options of the YAML:
```python tests/test_tools.py
from agent.register import Config
from nat.builder.workflow_builder import WorkflowBuilder

async def test_add_one():
    async with WorkflowBuilder() as builder:
        tool = await builder.add_function("add_one", Config())
        assert await tool.ainvoke(1) == 2
```
"""
_MCP = """scripts/setup_mcp.sh ends with `exec nat mcp serve --config_file agent/config.yml --port "${MCP_PORT:-9901}"`.
"""
_INSTALLABLE = """pyproject.toml has a [project] with name and version, and
[project.entry-points.'nat.components']
agent = "agent.register"
"""
_LLMS = {
    WorkflowType.react_agent: "`tool_names` and `llm_name`",
    WorkflowType.tool_calling_agent: "`tool_names` and `llm_name`",
    WorkflowType.router_agent: "`branches` and `llm_name`",
}
LAST_TURN_NOTE = "This is your last turn: write what is missing and call <function=finish></function>."

_MULTI_TURN_SYSTEM = '''You are an engineer who writes agents for the NVIDIA NeMo Agent Toolkit (NAT). You work in a \
folder that is empty at first, in turns: each of your messages holds one function call, and the next message shows its \
result.

# Functions

- str_replace_editor: edits text files. Parameters: command, path, and
  - command view: shows a file with line numbers (optional view_range, as [1, 40]), or lists a folder
  - command create: writes a whole file. file_text
  - command str_replace: old_str, which must occur exactly once in the file, becomes new_str
  - command insert: puts new_str after line insert_line (0: before the first)
- execute_bash: runs a shell command in the folder. Parameter: command. Every command has a fresh sandbox without \
network: files stay, processes do not. python, pytest and nat are there.
- run_tests: runs the tests. Parameter: path (optional), a file or folder
- validate: checks the files, builds the agent in NAT and tries the examples of the task. No parameters
- finish: ends the work; the folder is judged as it is. Parameter: message (optional)

A call looks like this, with values as they are, neither quoted nor escaped:

<function=str_replace_editor>
<parameter=command>create</parameter>
<parameter=path>agent/config.yml</parameter>
<parameter=file_text>
workflow:
  _type: scale
  factor: 3
</parameter>
</function>

You may think before the call. Nothing after it is read. A message without a whole call is lost, and its turn too.

# A package

`agent` stands for the package's name. All may lie in src/ instead.

agent/register.py registers every tool. Importing it must do no more than that:

from nat.plugin_api import Builder, FunctionBaseConfig, FunctionInfo, register_function


class ScaleConfig(FunctionBaseConfig, name="scale"):
    factor: int = 2


@register_function(config_type=ScaleConfig)
async def scale(config: ScaleConfig, builder: Builder):
    async def run(x: int) -> int:
        """Return x times factor; x must not be negative."""
        if x < 0:
            raise ValueError("x must not be negative")
        return x * config.factor

    yield FunctionInfo.from_fn(run, description=run.__doc__)

`name` is the `_type` in the YAML; options are fields of the class. Every tool has a class and a function of its own. \
The inner function is async, has the documented arguments, hints for all of them and for its return, and a docstring. \
To use another function: `other = await builder.get_function("other")` before the inner function, \
`await other.ainvoke(value)` in it; several arguments are passed as one dict.

agent/config.yml names what is used, each with the options that the task sets:

functions:
  scale:
    _type: scale
    factor: 3
llms:
  main:
    _type: nim
    model_name: meta/llama-3.1-8b-instruct
workflow:
  _type: react_agent
  tool_names: [scale]
  llm_name: main

Under `workflow`: react_agent and tool_calling_agent have tool_names and llm_name; router_agent has branches (tools) \
and llm_name; sequential_executor has tool_list, in order; a function of your own has only its `_type` and options. \
`functions` lists the tools, each under its own name; if the workflow is the only one, it is left out. `llms` only \
where the task names one. Option names must be exact: NAT ignores unknown ones.

tests/test_tools.py calls tools through NAT, so that other implementations can be put in their place; a test that a \
wrong implementation passes is worth nothing. pytest-asyncio runs in auto mode:

import pytest
from agent.register import ScaleConfig
from nat.builder.workflow_builder import WorkflowBuilder


async def test_scale():
    async with WorkflowBuilder() as builder:
        scale = await builder.add_function("scale", ScaleConfig(factor=3))
        assert await scale.ainvoke(4) == 12
        with pytest.raises(ValueError):
            await scale.ainvoke(-1)

scripts/setup_mcp.sh serves the tools over MCP:

#!/usr/bin/env bash
set -euo pipefail
exec nat mcp serve --config_file agent/config.yml --port "${MCP_PORT:-9901}"

pyproject.toml lets NAT find the package:

[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "agent"
version = "0.1.0"
dependencies = ["nvidia-nat-core", "nvidia-nat-langchain", "nvidia-nat-mcp"]

[project.entry-points.'nat.components']
agent = "agent.register"

# What counts

After you finish, hidden checks call every tool and the workflow on inputs that you have not seen, and compare outputs \
and exceptions. Examples are only examples.
'''
MULTI_TURN_LAST_NOTE = "This is your last turn: call finish."


def build_prompt(spec: AgentSpec, form: Form, max_turns: int) -> list[Message]:
    """Return the first messages of a task."""
    if form is Form.one_shot:
        return _one_shot(spec, max_turns)
    task = f"{render_spec(spec)}\n\nYou have {max_turns} turns; the last call must be finish."
    return [Message(role="system", content=_MULTI_TURN_SYSTEM), Message(role="user", content=task)]


def _one_shot(spec: AgentSpec, max_turns: int) -> list[Message]:
    """Return a short prompt.

    The worked example is a turn of the dialogue, since small models imitate what they seem to have said far more
    readily than what a system message shows.
    """
    return [
        Message(role="system", content=_one_shot_system(spec, max_turns)),
        Message(role="user", content=_EXAMPLE_TASK),
        Message(role="assistant", content=_EXAMPLE_ANSWER),
        Message(role="user", content=_one_shot_task(spec)),
    ]


def _one_shot_system(spec: AgentSpec, max_turns: int) -> str:
    asked = [
        (_OPTIONS, any(tool.config for tool in spec.functions)),
        (_SEVERAL_TOOLS, spec.workflow.type is not WorkflowType.single),
        (_CALLS_TOOLS, any(tool.uses for tool in spec.functions)),
        (_DESCRIBED, spec.is_full),
        (_TESTS.replace("agent", spec.package), spec.integration.num_tests > 0),
        (_MCP.replace("agent", spec.package), bool(spec.integration.mcp)),
        (_INSTALLABLE.replace("agent", spec.package), spec.integration.is_installable),
        (_TURNS, max_turns > 1),
    ]
    return _SYSTEM + "".join(text for text, is_asked in asked if is_asked)


def _one_shot_task(spec: AgentSpec) -> str:
    files = f"{spec.package}/register.py and {spec.package}/config.yml"
    first, *others = spec.tools
    parts = [_describe(f"Write {files} with tool", first), *(_describe("Also tool", tool) for tool in others)]
    workflow = spec.workflow
    if workflow.function is not None:
        parts.append(_describe("And the workflow", workflow.function))
    elif workflow.type is WorkflowType.sequential_executor:
        parts.append(f"The workflow has `_type: sequential_executor` and `tool_list: [{', '.join(workflow.uses)}]`.")
    elif workflow.type.has_llm:
        llm = spec.integration.llms[0]
        parts.append(
            f"The workflow has `_type: {workflow.type}`, {_LLMS[workflow.type]} ([{', '.join(workflow.uses)}] and "
            f"{llm}); `llms` has {llm} with `_type: nim` and `model_name: meta/llama-3.1-8b-instruct`."
        )
    if spec.integration.num_tests:
        parts.append(f"Also tests/test_tools.py with at least {spec.integration.num_tests} tests.")
    if spec.integration.mcp:
        parts.append("Also scripts/setup_mcp.sh.")
    if spec.integration.is_installable:
        parts.append("Also pyproject.toml.")
    return "\n".join(parts)


def _describe(verb: str, tool: ToolSpec) -> str:
    lines = [f"{verb} `{signature(tool)}`: {tool.description}", *tool.behaviour]
    lines += [f"Raise {error.raises} if {error.when}." for error in tool.errors]
    for option in tool.config:
        default, value = json.dumps(option.default), json.dumps(option.value)
        lines.append(f"Option `{option.name}: {option.type} = {default}`; the YAML sets it to {value}.")
    for example in tool.examples:
        lines.append(f"Example: {json.dumps(example.input)} -> {json.dumps(example.output)}")
    return " ".join(lines)

"""What the policy reads. Short on purpose: a small model has about a thousand tokens for everything."""

import json

from skyrl_nat.environments.nat_agent.payload import AgentSpec, ToolSpec
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
The workflow function gets a tool by `tool_a = await builder.get_function("tool_a")` before `run`, and in `run` calls
`await tool_a.ainvoke(value)` (a dict where it has several arguments).
"""
_TURNS = """In place of finish you may call <function=validate></function> to check the files.
"""
LAST_TURN_NOTE = "This is your last turn: write what is missing and call <function=finish></function>."


def build_prompt(spec: AgentSpec, max_turns: int) -> list[Message]:
    """Return the first messages of a task.

    The worked example is a turn of the dialogue, since small models imitate what they seem to have said far more
    readily than what a system message shows.
    """
    system = _SYSTEM
    if any(tool.options for tool in spec.functions):
        system += _OPTIONS
    if spec.workflow is not None:
        system += _SEVERAL_TOOLS
    if max_turns > 1:
        system += _TURNS
    files = f"{spec.package}/register.py and {spec.package}/config.yml"
    first, *others = spec.tools
    parts = [_describe(f"Write {files} with tool", first), *(_describe("Also tool", tool) for tool in others)]
    if spec.workflow is not None:
        parts.append(_describe("And the workflow", spec.workflow))
    return [
        Message(role="system", content=system),
        Message(role="user", content=_EXAMPLE_TASK),
        Message(role="assistant", content=_EXAMPLE_ANSWER),
        Message(role="user", content="\n".join(parts)),
    ]


def signature(tool: ToolSpec) -> str:
    """Return a tool's signature as Python text."""
    arguments = ", ".join(f"{name}: {kind}" for name, kind in tool.arguments.items())
    return f"{tool.name}({arguments}) -> {tool.returns}"


def _describe(verb: str, tool: ToolSpec) -> str:
    lines = [f"{verb} `{signature(tool)}`: {tool.description}"]
    if tool.raises:
        lines.append(f"Raise ValueError if {tool.raises}.")
    for option in tool.options:
        default, value = json.dumps(option.default), json.dumps(option.value)
        lines.append(f"Option `{option.name}: {option.type} = {default}`; the YAML sets it to {value}.")
    for example in tool.examples:
        lines.append(f"Example: {json.dumps(example.input)} -> {json.dumps(example.output)}")
    return " ".join(lines)

"""Agents as a model writes them that has not got it right: each with what is wrong and what must be said of it.

All start from an honest answer to one shipped task, `trip_agent` (ReAct, two tools with options, tests, MCP).
"""

from collections.abc import Callable
from dataclasses import dataclass

Files = dict[str, str]
REGISTER, CONFIG, TESTS = "agent/register.py", "agent/config.yml", "tests/test_tools.py"
SCRIPT, PROJECT = "scripts/setup_mcp.sh", "pyproject.toml"
TASK = "trip_agent"
CONVERT = "@register_function(config_type=ConvertTemperatureConfig)\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongAgent:
    """One mistake."""

    change: Callable[[Files], Files]
    finding: str
    """Must be part of a finding."""
    low: float
    high: float
    """The reward must lie between them, both included."""


def replaced(path: str, old: str, new: str, *, everywhere: bool = False) -> Callable[[Files], Files]:
    """Return a change of one text in one file."""

    def change(files: Files) -> Files:
        assert old in files[path], (path, old)
        return files | {path: files[path].replace(old, new) if everywhere else files[path].replace(old, new, 1)}

    return change


def written(path: str, text: str) -> Callable[[Files], Files]:
    """Return a change that puts a text in place of a file."""
    return lambda files: files | {path: text}


def without(path: str) -> Callable[[Files], Files]:
    """Return a change that leaves a file out."""
    return lambda files: {name: text for name, text in files.items() if name != path}


def before(path: str, text: str) -> Callable[[Files], Files]:
    """Return a change that puts a text in front of a file."""
    return lambda files: files | {path: text + files[path]}


def in_tools_module(files: Files) -> Files:
    """Move all tools to a module that register.py does not import."""
    return files | {REGISTER: '"""Nothing here."""\n', "agent/tools.py": files[REGISTER]}


def as_group(files: Files) -> Files:
    """Decorate a function config as a group."""
    text = files[REGISTER].replace(CONVERT, "@register_function_group(config_type=ConvertTemperatureConfig)\n")
    return files | {REGISTER: text.replace("register_function\n", "register_function, register_function_group\n", 1)}


TESTS_HEAD = "import pytest\nfrom agent.register import PackingAdviceConfig\n"
MCP_CLIENT = """function_groups:
  remote:
    _type: mcp_client
    server:
      transport: stdio
      {}
"""

WRONG_AGENTS: dict[str, WrongAgent] = {
    # ---- nothing can be loaded --------------------------------------------------------------------------------
    "syntax error": WrongAgent(
        change=replaced(REGISTER, "yield FunctionInfo", "yield (FunctionInfo"), finding="register.py:", low=0, high=0
    ),
    "import error": WrongAgent(
        change=before(REGISTER, "import no_such_module\n"), finding="no_such_module", low=0, high=0
    ),
    "register.py imports nothing": WrongAgent(
        change=in_tools_module, finding="no function is registered under", low=0, high=0
    ),
    "exits at import": WrongAgent(
        change=before(REGISTER, "import sys\nsys.exit(0)\n"), finding="register: SystemExit", low=0, high=0
    ),
    "hard exit at import": WrongAgent(
        change=before(REGISTER, "import os\nos._exit(0)\n"), finding="no complete result", low=0, high=0
    ),
    "loops at import": WrongAgent(change=before(REGISTER, "while True:\n    pass\n"), finding="timeout", low=0, high=0),
    # ---- tools work, the workflow file does not ---------------------------------------------------------------
    "no decorator": WrongAgent(
        change=replaced(REGISTER, CONVERT, ""), finding="no function is registered under", low=0, high=0.2
    ),
    "group decorator": WrongAgent(change=as_group, finding="register:", low=0, high=0.2),
    "config without name": WrongAgent(
        change=replaced(REGISTER, 'FunctionBaseConfig, name="packing_advice"', "FunctionBaseConfig"),
        finding="register: ",
        low=0,
        high=0.2,
    ),
    "two configs of one name": WrongAgent(
        change=replaced(REGISTER, 'name="packing_advice"', 'name="convert_temperature"'),
        finding="register:",
        low=0,
        high=0.2,
    ),
    "unknown _type": WrongAgent(
        change=replaced(CONFIG, "_type: packing_advice", "_type: packing_advise"),
        finding="does not match any of the expected tags",
        low=0.05,
        high=0.25,
    ),
    "yaml syntax": WrongAgent(
        change=replaced(CONFIG, "workflow:", "workflow"), finding="could not find expected", low=0.05, high=0.25
    ),
    "unknown section": WrongAgent(
        change=before(CONFIG, "tools: {}\n"), finding="Extra inputs are not permitted", low=0.05, high=0.25
    ),
    "key twice": WrongAgent(
        change=before(CONFIG, "functions: {}\n"), finding="stands twice, in lines", low=0.05, high=0.25
    ),
    "text for a number": WrongAgent(
        change=replaced(CONFIG, "precision: 1", "precision: hot"), finding="valid integer", low=0.05, high=0.25
    ),
    "unset variable": WrongAgent(
        change=replaced(CONFIG, "precision: 1", "precision: ${NO_SUCH_VARIABLE}"),
        finding="valid integer",
        low=0.05,
        high=0.25,
    ),
    "no workflow section": WrongAgent(
        change=lambda files: files | {CONFIG: files[CONFIG].partition("workflow:")[0]},
        finding="workflow._type must be react_agent, got None",
        low=0.05,
        high=0.25,
    ),
    "no llms section": WrongAgent(
        change=lambda files: (
            files | {CONFIG: files[CONFIG].replace("llms:\n  main:", "retrievers: {}\nembedders:\n  main:")}
        ),
        finding="llms must have main",
        low=0.05,
        high=0.25,
    ),
    "mcp client with url": WrongAgent(
        change=before(CONFIG, MCP_CLIENT.format("url: http://localhost:1")),
        finding="url should not be set",
        low=0.05,
        high=0.25,
    ),
    "mcp client without command": WrongAgent(
        change=before(CONFIG, MCP_CLIENT.format("command: no-such-server")),
        finding="build:",
        low=0.05,
        high=0.25,
    ),
    "unknown function": WrongAgent(
        change=replaced(CONFIG, "  - packing_advice", "  - nope"), finding="`nope` not found", low=0.05, high=0.25
    ),
    "unknown llm": WrongAgent(
        change=replaced(CONFIG, "llm_name: main", "llm_name: nope"), finding="`nope` not found", low=0.05, high=0.25
    ),
    "no input hint": WrongAgent(
        change=replaced(REGISTER, "celsius: float", "celsius"), finding="input annotation", low=0, high=0.15
    ),
    "no return hint": WrongAgent(
        change=replaced(REGISTER, "-> float:", ":"),
        finding="must annotate every argument and return",
        low=0.95,
        high=0.995,
    ),
    "returns for yield": WrongAgent(
        change=replaced(REGISTER, "yield FunctionInfo", "return FunctionInfo"),
        finding="not an async iterator",
        low=0,
        high=0.15,
    ),
    "plain function": WrongAgent(
        change=replaced(REGISTER, "    async def run(celsius", "    def run(celsius"),
        finding="Must be an async generator or coroutine",
        low=0,
        high=0.15,
    ),
    "yields text": WrongAgent(
        change=replaced(REGISTER, "yield FunctionInfo.from_fn(run, description=run.__doc__)", 'yield "run"'),
        finding="Expected a function",
        low=0,
        high=0.15,
    ),
    "build raises": WrongAgent(
        change=replaced(
            REGISTER, "    async def run(celsius", '    raise RuntimeError("at build")\n    async def run(celsius'
        ),
        finding="at build",
        low=0,
        high=0.15,
    ),
    # ---- it loads and builds, but does something else ----------------------------------------------------------
    "bad attribute": WrongAgent(
        change=replaced(REGISTER, "config.cold_below", "config.cold_bellow"),
        finding="tool packing_advice: 0 of",
        low=0.3,
        high=0.7,
    ),
    "tool raises": WrongAgent(
        change=replaced(REGISTER, "if celsius <", "raise KeyError(celsius)\n        if celsius <"),
        finding="tool packing_advice: 0 of",
        low=0.3,
        high=0.7,
    ),
    "tool loops": WrongAgent(
        change=replaced(REGISTER, "if celsius <", "while True: pass\n        if celsius <"),
        finding="timeout",
        low=0,
        high=0.45,
    ),
    "all answers None": WrongAgent(
        change=replaced(REGISTER, '"""\n        if', '"""\n        return None\n        if', everywhere=True),
        finding="tool packing_advice: 0 of",
        low=0,
        high=0,
    ),
    "wrong threshold": WrongAgent(
        change=replaced(REGISTER, "celsius >= config.warm_from", "celsius > config.warm_from + 9"),
        finding="tool packing_advice:",
        low=0.5,
        high=0.95,
    ),
    "forgot to round": WrongAgent(
        change=replaced(REGISTER, "round((value - 32) * 5 / 9, config.precision)", "(value - 32) * 5 / 9"),
        finding="tool convert_temperature:",
        low=0.5,
        high=0.95,
    ),
    "text for a float": WrongAgent(
        change=replaced(REGISTER, "return round(", "return str(round(", everywhere=False),
        finding="register.py:",
        low=0,
        high=0,
    ),
    "another type than annotated": WrongAgent(
        change=lambda files: (
            files | {REGISTER: files[REGISTER].replace("config.precision)\n", "config.precision).__str__()\n")}
        ),
        finding="tool convert_temperature: 0 of",
        low=0.4,
        high=0.8,
    ),
    "default for the set option": WrongAgent(
        change=replaced(CONFIG, "precision: 1", "precision: 2"),
        finding="options: convert_temperature.precision must be 1",
        low=0.4,
        high=0.95,
    ),
    "misspelt option": WrongAgent(
        change=replaced(CONFIG, "cold_below: 8.0", "cold_bellow: 8.0"),
        finding="unknown option functions.packing_advice.cold_bellow",
        low=0.5,
        high=0.97,
    ),
    "returns None for bad input": WrongAgent(
        change=lambda files: (
            files | {REGISTER: files[REGISTER].replace('raise ValueError(f"unknown unit {to_unit}")', "return None")}
        ),
        finding="bad inputs refused",
        low=0.8,
        high=0.99,
    ),
    "wrong exception": WrongAgent(
        change=replaced(REGISTER, "raise ValueError(", "raise LookupError("),
        finding="bad inputs refused",
        low=0.8,
        high=0.99,
    ),
    "another agent type": WrongAgent(
        change=replaced(CONFIG, "_type: react_agent", "_type: tool_calling_agent"),
        finding="workflow._type must be react_agent",
        low=0.15,
        high=0.8,
    ),
    "offers one tool only": WrongAgent(
        change=replaced(CONFIG, "  - convert_temperature\n", ""),
        finding="workflow:",
        low=0.5,
        high=0.95,
    ),
    # ---- function is right, something around it is not ---------------------------------------------------------
    "no description": WrongAgent(
        change=lambda files: (
            files
            | {
                REGISTER: "\n".join(
                    line
                    for line in files[REGISTER].replace(", description=run.__doc__", "").splitlines()
                    if '        """' not in line
                )
            }
        ),
        finding="must have a description",
        low=0.97,
        high=0.999,
    ),
    "no tests": WrongAgent(change=without(TESTS), finding="tests: at least 3", low=0.9, high=0.96),
    "tests assert nothing": WrongAgent(
        change=written(TESTS, "def test_a():\n    pass\n\ndef test_b():\n    pass\n\ndef test_c():\n    assert True\n"),
        finding="they call no tool through NAT",
        low=0.9,
        high=0.96,
    ),
    "test fails": WrongAgent(
        change=replaced(TESTS, "'coat'", "'cloak'"), finding="own tests: 2 of 3 pass", low=0.9, high=0.99
    ),
    "tests loop": WrongAgent(
        change=replaced(
            TESTS, "    async with WorkflowBuilder()", "    while True: pass\n    async with WorkflowBuilder()"
        ),
        finding="own tests: none passes",
        low=0.9,
        high=0.96,
    ),
    "syntax error in the tests": WrongAgent(
        change=replaced(TESTS, "CONFIGS = {", "CONFIGS = {("), finding="tests/test_tools.py:", low=0.9, high=0.96
    ),
    "unknown fixture": WrongAgent(
        change=written(
            TESTS, "def test_a(nope):\n    assert nope\n\n\ndef test_b():\n    pass\n\n\ndef test_c():\n    pass\n"
        ),
        finding="own tests: 2 of 3 pass",
        low=0.9,
        high=0.96,
    ),
    "no start script": WrongAgent(change=without(SCRIPT), finding="setup_mcp.sh is missing", low=0.85, high=0.93),
    "start script names no server": WrongAgent(
        change=replaced(SCRIPT, "exec nat mcp serve", "exec my-mcp-server"),
        finding="the last command must be `nat mcp serve",
        low=0.85,
        high=0.93,
    ),
    "no pyproject": WrongAgent(change=without(PROJECT), finding="pyproject.toml: must have", low=0.95, high=0.99),
    "entry point of another module": WrongAgent(
        change=replaced(PROJECT, '"agent.register"', '"agent.tools"'),
        finding="an entry point nat.components must be agent.register",
        low=0.95,
        high=0.99,
    ),
}

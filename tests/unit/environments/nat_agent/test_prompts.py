"""What the policy reads first."""

import ast
import json
import tomllib

import pytest
import yaml
from unit.environments.nat_agent import spec_v2

from skyrl_nat.config.environment import Form
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.payload import parse_spec
from skyrl_nat.environments.nat_agent.prompts import build_prompt

DOUBLE_USER = (
    "Write agent/register.py and agent/config.yml with tool `double_number(x: int) -> int`: "
    "Return x times 2. Example: 4 -> 8"
)


def texts(payload: dict, form: Form, max_turns: int = 12) -> tuple[str, str]:
    prompt = build_prompt(parse_spec(payload), form, max_turns)
    return prompt[0]["content"], prompt[-1]["content"]


def test_one_shot_prompt_of_a_bare_tool_is_short_and_shows_a_turn() -> None:
    """A model of 135M parameters earned its first rewards with exactly this text."""
    prompt = build_prompt(parse_spec(spec_v2.DOUBLE), Form.one_shot, 2)
    assert [message["role"] for message in prompt] == ["system", "user", "assistant", "user"]
    assert prompt[-1]["content"] == DOUBLE_USER
    assert prompt[0]["content"] == (
        "You write tools for the NeMo Agent Toolkit. Answer with the files only.\n"
        "In place of finish you may call <function=validate></function> to check the files.\n"
    )
    assert sum(len(message["content"]) for message in prompt) < 1100


def test_one_shot_prompt_names_options_errors_and_the_workflow() -> None:
    system, user = texts(spec_v2.REPORT, Form.one_shot, 1)
    assert "Options are fields of Config" in system
    assert 'await builder.get_function("tool_a")' in system
    assert "validate" not in system
    assert "Raise ValueError if text has no word." in user
    assert "Option `factor: float = 1.0`; the YAML sets it to 2.5." in user
    assert "And the workflow `report_flow(text: str) -> float`: " in user


def test_one_shot_prompt_asks_for_all_that_is_judged() -> None:
    system, user = texts(spec_v2.TRIP, Form.one_shot)
    for piece in ("FunctionInfo.from_fn", "WorkflowBuilder", "nat mcp serve", "nat.components"):
        assert piece in system
    for piece in (
        "`_type: react_agent`",
        "[convert, packing] and main",
        "at least 3 tests",
        "setup_mcp.sh",
        "pyproject",
    ):
        assert piece in user
    assert "Results are rounded to one digit. Raise KeyError if the unit is unknown." in user


def test_multi_turn_system_message_is_the_same_for_all_tasks() -> None:
    assert len({texts(payload, Form.multi_turn)[0] for payload in spec_v2.ALL.values()}) == 1


def test_multi_turn_prompt_shows_code_that_is_whole() -> None:
    """What a policy is told to imitate must parse."""
    system, _ = texts(spec_v2.TRIP, Form.multi_turn)
    module = system[system.index("from nat.plugin_api") : system.index("`name` is the `_type`")]
    test = system[system.index("import pytest\n") : system.index("scripts/setup_mcp.sh serves")]
    config = system[system.index("functions:\n") : system.index("Under `workflow`")]
    project = system[system.index("[build-system]") : system.index("# What counts")]
    ast.parse(module)
    ast.parse(test)
    assert yaml.safe_load(config)["workflow"]["tool_names"] == ["scale"]
    assert tomllib.loads(project)["project"]["entry-points"]["nat.components"] == {"agent": "agent.register"}


def test_multi_turn_prompt_renders_everything_that_the_task_says() -> None:
    _, user = texts(spec_v2.TRIP, Form.multi_turn, 9)
    for piece in (
        "Write the NAT package `trip`: trip_agent.",
        "Says what to pack.",
        "## `convert(value: float, to_unit: str) -> float`",
        "- Results are rounded to one digit.",
        '- Argument to_unit: {"enum": ["celsius", "fahrenheit"]}',
        "- Raise KeyError if the unit is unknown.",
        '- Example: {"value": 212.0, "to_unit": "celsius"} -> 100.0',
        "## `packing(celsius: float) -> list[str]`",
        "- The order of the output's items does not matter.",
        "`_type: react_agent` over `convert`, `packing`, with the LLM `main`.",
        "- tests/test_tools.py with at least 3 tests",
        "- scripts/setup_mcp.sh, which serves `convert`",
        "- pyproject.toml",
        '- "Pack for 5 degrees." -> "Take a coat."',
        "You have 9 turns",
    ):
        assert piece in user
    _, user = texts(spec_v2.REPORT, Form.multi_turn)
    for piece in (
        "- Option `factor: float = 1.0` of its configuration class; config.yml sets it to 2.5.",
        "- Outputs are right within abs_tol 0.01, rel_tol 0.001.",
        "`_type: report_flow`",
        "- Calls `word_count`, `scale` through NAT.",
        "No other file is asked for.",
    ):
        assert piece in user


@pytest.mark.parametrize("form", list(Form))
def test_prompts_of_shipped_tasks_show_no_hidden_input(form: Form) -> None:
    for task in load_tasks(["builtin:nat_agent/train", "builtin:nat_agent/validation"]):
        user = build_prompt(parse_spec(task.payload), form, 4)[-1]["content"]
        if len(task.payload["tools"]) > 1:
            continue  # a visible input of one tool may be a hidden one of another
        assert all(f"Example: {json.dumps(vector['input'])} -> " not in user for vector in task.hidden["vectors"])
        assert "reference" not in user

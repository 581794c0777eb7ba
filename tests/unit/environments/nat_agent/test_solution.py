"""Honest answers as files: they parse, are whole, and hold what the task asks for."""

import ast
import tomllib

import pytest
import yaml
from nat_tasks import BODIES, answer, halves, make_task

from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.payload import Vector, parse_spec
from skyrl_nat.environments.nat_agent.solution import config_class, render_config, render_register, render_solution
from skyrl_nat.environments.nat_agent.static_checks import check_files, load_yaml


def test_bare_task_gets_two_files() -> None:
    files = answer(make_task("single", tools="scale"))
    assert list(files) == ["agent/register.py", "agent/config.yml"]
    assert yaml.safe_load(files["agent/config.yml"]) == {"workflow": {"_type": "scale", "factor": 2}}


def test_register_module_is_what_a_careful_developer_writes() -> None:
    spec, _ = halves(make_task("single", tools="scale"))
    assert render_register(spec, BODIES) == (
        "from nat.plugin_api import Builder, FunctionBaseConfig, register_function\n"
        "\n\n"
        'class ScaleConfig(FunctionBaseConfig, name="scale"):\n'
        "    factor: int = 3\n"
        "\n\n"
        "@register_function(config_type=ScaleConfig)\n"
        "async def scale(config: ScaleConfig, builder: Builder):\n"
        "    async def run(x: int) -> int:\n"
        "        if x < 0:\n"
        "            raise ValueError('negative')\n"
        "        return x * config.factor\n"
        "\n"
        "    yield run\n"
    )


@pytest.mark.parametrize(
    ("kind", "workflow"),
    [
        ("react_agent", {"_type": "react_agent", "tool_names": ["scale", "shout"], "llm_name": "main"}),
        ("tool_calling_agent", {"_type": "tool_calling_agent", "tool_names": ["scale", "shout"], "llm_name": "main"}),
        ("router_agent", {"_type": "router_agent", "branches": ["scale", "shout"], "llm_name": "main"}),
        ("sequential_executor", {"_type": "sequential_executor", "tool_list": ["scale", "shout"]}),
    ],
)
def test_workflow_file_names_the_tools_as_its_type_wants_them(kind: str, workflow: dict[str, object]) -> None:
    config = load_yaml(render_config(halves(make_task(kind))[0]))
    assert config["workflow"] == workflow
    assert config["functions"] == {"scale": {"_type": "scale", "factor": 2}, "shout": {"_type": "shout"}}
    assert ("llms" in config) == ("llm_name" in workflow)


def test_whole_task_gets_script_entry_point_and_tests() -> None:
    files = answer(make_task(mcp=["scale"], num_tests=2, is_installable=True))
    points = tomllib.loads(files["pyproject.toml"])["project"]["entry-points"]["nat.components"]
    assert points == {"agent": "agent.register"}
    assert "exec nat mcp serve --config_file agent/config.yml" in files["scripts/setup_mcp.sh"].split("\n")[-2]
    tests = files["tests/test_tools.py"]
    assert "    (1000, 2000)," in tests
    assert "('left', 'LEFT!')" in tests
    assert "with pytest.raises(ValueError):" in tests
    assert 'scale": ScaleConfig(factor=2)' in tests
    assert '"""Return x times factor."""' in files["agent/register.py"]


def test_floats_are_compared_approximately_in_the_rendered_tests() -> None:
    task = make_task("single", tools="scale", num_tests=1)
    task.payload["tools"][0]["output"] = {"type": "number"}
    files = render_solution(halves(task)[0], BODIES, [Vector(tool="scale", input=1, output=2.0)])
    assert "== pytest.approx(expected)" in files["tests/test_tools.py"]


def test_class_names_are_in_camel_case() -> None:
    assert config_class("parse_line") == "ParseLineConfig"


@pytest.mark.parametrize("split", ["train", "validation"])
def test_shipped_solutions_parse_and_have_no_finding(split: str) -> None:
    for task in load_tasks([f"builtin:nat_agent/{split}"]):
        files = task.hidden["solution"]
        assert check_files(parse_spec(task.payload), files).findings == [], task.task_id
        assert all(ast.parse(text) for path, text in files.items() if path.endswith(".py"))

"""From a source to a task: recorded outputs, two halves that share nothing hidden, contradictions refused."""

import copy
import re
from typing import Any

import pytest
from mini_nat import OracleSandbox, open_oracle

from skyrl_nat.data.making.build import MAX_MUTANTS, NUM_MUTANTS, all_functions, build_task, draft_of, mutants_of
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.environments.nat_agent.payload import Reference, parse_hidden, parse_spec
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

DRAW = {"x": {"kind": "integer", "low": 100, "high": 900}}


def double(**changes: Any) -> dict[str, Any]:
    tool = {
        "name": "double", "args": {"x": "int"}, "returns": "int", "does": "Return x times 2.",
        "body": "return x * 2", "draw": DRAW, "examples": [4], "inputs": [3, 7, 10],
    }  # fmt: skip
    return copy.deepcopy(tool | changes)


def plus(**changes: Any) -> dict[str, Any]:
    return double(name="plus", does="Return x plus 1.", body="return x + 1") | changes


def shout(**changes: Any) -> dict[str, Any]:
    tool = {
        "name": "shout", "args": {"text": "str"}, "returns": "str", "does": "Return text in upper case and end.",
        "body": "return text.upper() + config.end", "options": {"end": {"type": "str", "default": "?", "set": "!"}},
        "draw": {"text": {"kind": "choice", "values": ["north", "south"]}},
        "examples": ["left"], "inputs": ["up", "on"],
    }  # fmt: skip
    return copy.deepcopy(tool | changes)


REFUSING = "if x < 0:\n    raise ValueError('negative')\nreturn x * 2\n"
RANGE = "if x < 0 or x > 9:\n    raise ValueError('out of range')\nreturn x * 2"
STEP = "return x + 1 if x > 0 else 7"


def flow(**changes: Any) -> dict[str, Any]:
    body = "return await double.ainvoke(await plus.ainvoke(x))"
    tool = {
        "name": "flow", "args": {"x": "int"}, "returns": "int", "does": "Add 1 to x, then double it.", "body": body,
        "uses": ["double", "plus"], "examples": [6], "draw": DRAW,
    }  # fmt: skip
    return copy.deepcopy(tool | changes)


def source(*tools: dict[str, Any], **changes: Any) -> dict[str, Any]:
    found = {"id": "small", "difficulty": 2, "description": "A small one.", "tools": list(tools), "e2e": [50, 60]}
    return found | changes


def build(*tools: dict[str, Any], **changes: Any) -> Task:
    return build_task(source(*tools, **changes), "nat_agent/train/small", open_oracle())


def refused(*tools: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(DataError) as caught:
        build(*tools, **changes)
    return str(caught.value)


def code(expression: str) -> str:
    return f"async def run(x):\n    return {expression}\n"


def test_functions_are_the_tools_and_the_workflow_last() -> None:
    named = [tool["name"] for tool in all_functions(source(double(), plus(), workflow=flow()))]
    assert named == ["double", "plus", "flow"]
    assert all_functions(source(double())) == [double()]


def test_draft_holds_code_set_options_and_the_generators_there_are() -> None:
    shape = {"name": "area", "args": {"width": "int", "height": "int"}, "body": "size = width\nreturn size * height\n"}
    draft = draft_of({"tools": [shape, shout()]})
    assert draft.reference == {
        "area": Reference(source="async def run(width, height):\n    size = width\n    return size * height\n"),
        "shout": Reference(
            source="async def run(text):\n    return text.upper() + config.end\n", config={"end": "!"}
        ),
    }  # fmt: skip
    assert draft.generators == {"shout": {"text": {"kind": "choice", "values": ["north", "south"]}}}
    assert draft.vectors == ()


def test_mutants_are_versions_with_one_mistake_each() -> None:
    draft = draft_of({"tools": [double(), plus(body="return x + " + " + ".join("123456789"))]})
    assert sorted(mutants_of(draft, "double")) == [code("x * 3"), code("x + 2")]
    many = mutants_of(draft, "plus")
    assert len(set(many)) == len(many) == NUM_MUTANTS == 12  # of 9 signs and 9 numbers
    assert many == mutants_of(draft, "plus")


def test_single_tool_becomes_what_is_seen() -> None:
    task = build(double(raises="x is negative", body=REFUSING, behaviour=["No rounding."], inputs=[0, 5]))
    assert (task.task_id, task.family, task.difficulty) == ("nat_agent/train/small", "nat_agent", 2)
    assert task.payload == {
        "spec_version": 2,
        "name": "small",
        "description": "A small one.",
        "package": "agent",
        "tools": [
            {
                "name": "double",
                "description": "Return x times 2.",
                "inputs": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
                "output": {"type": "integer"},
                "behaviour": ["No rounding."],
                "errors": [{"when": "x is negative", "raises": "ValueError"}],
                "config": [],
                "uses": [],
                "examples": [{"input": 4, "output": 8}],
            }
        ],
        "workflow": {"type": "single", "uses": ["double"]},
        "integration": {"llms": []},
        "e2e": [],
    }


def test_types_become_json_schemas() -> None:
    kinds = {"a": "int", "b": "float", "c": "str", "d": "bool", "e": "list[int]", "f": "list[float]", "g": "list[str]"}
    values = [
        {"a": n, "b": 0.5, "c": "x", "d": True, "e": [1], "f": [1.5], "g": ["y"]} for n in (3, 7, 10)
    ]  # fmt: skip
    tool = double(args=kinds, returns="list[float]", body="return [a + b]", draw={}, examples=values[:1])
    [shown] = build(tool | {"inputs": values[1:]}, e2e=values[2:]).payload["tools"]
    assert shown["inputs"]["properties"] == {
        "a": {"type": "integer"},
        "b": {"type": "number"},
        "c": {"type": "string"},
        "d": {"type": "boolean"},
        "e": {"type": "array", "items": {"type": "integer"}},
        "f": {"type": "array", "items": {"type": "number"}},
        "g": {"type": "array", "items": {"type": "string"}},
    }
    assert shown["inputs"]["required"] == ["a", "b", "c", "d", "e", "f", "g"]
    assert shown["output"] == {"type": "array", "items": {"type": "number"}}
    assert shown["examples"] == [{"input": values[0], "output": [3.5]}]


def test_single_tool_becomes_what_is_hidden() -> None:
    law = {"kind": "monotone"}
    hidden = build(double(raises="x is negative", body=REFUSING, inputs=[0, 5], errors=[-1, -8], laws=[law])).hidden
    assert hidden["vectors"] == [
        {"tool": "double", "input": 0, "output": 0},
        {"tool": "double", "input": 5, "output": 10},
    ]
    assert hidden["errors"] == [
        {"tool": "double", "input": -1, "raises": "ValueError"},
        {"tool": "double", "input": -8, "raises": "ValueError"},
    ]
    assert hidden["e2e"] == [{"input": 50, "output": 100}, {"input": 60, "output": 120}]
    assert hidden["properties"] == [{"tool": "double", "kind": "monotone"}]
    assert hidden["generators"] == {"double": DRAW}
    assert list(hidden["reference"]) == ["double"]
    assert set(hidden["solution"]) == {"agent/register.py", "agent/config.yml"}
    inner = "        if x < 0:\n            raise ValueError('negative')\n        return x * 2\n"
    assert f"    async def run(x: int) -> int:\n{inner}" in hidden["solution"]["agent/register.py"]


def test_option_is_shown_with_default_and_value_and_the_answers_are_those_of_the_value() -> None:
    task = build(shout(), e2e=["go"])
    [tool] = task.payload["tools"]
    assert tool["config"] == [{"name": "end", "type": "str", "default": "?", "value": "!"}]
    assert tool["examples"] == [{"input": "left", "output": "LEFT!"}]
    assert [vector["output"] for vector in task.hidden["vectors"]] == ["UP!", "ON!"]
    assert task.hidden["e2e"] == [{"input": "go", "output": "GO!"}]
    assert task.hidden["reference"]["shout"]["config"] == {"end": "!"}


def test_sequence_runs_its_tools_in_the_order_of_use() -> None:
    task = build(plus(), double(), workflow_type="sequential_executor", uses=["double", "plus"], e2e=[5])
    assert task.payload["workflow"] == {"type": "sequential_executor", "uses": ["double", "plus"]}
    assert task.hidden["e2e"] == [{"input": 5, "output": 11}]  # the other way round it would be 12
    assert build(plus(), double(), workflow_type="sequential_executor", e2e=[5]).hidden["e2e"][0]["output"] == 12


def test_workflow_function_is_asked_end_to_end_and_its_examples_stand_in_for_hidden_inputs() -> None:
    task = build(double(), plus(), workflow=flow())
    workflow = task.payload["workflow"]
    assert (workflow["type"], workflow["uses"]) == ("custom", ["double", "plus"])
    assert workflow["function"]["uses"] == ["double", "plus"]
    assert workflow["function"]["examples"] == [{"input": 6, "output": 14}]
    assert [tool["name"] for tool in task.payload["tools"]] == ["double", "plus"]
    assert task.hidden["e2e"] == [{"input": 50, "output": 102}, {"input": 60, "output": 122}]
    assert task.hidden["vectors"][-1] == {"tool": "flow", "input": 6, "output": 14}
    assert task.hidden["reference"]["flow"]["source"].startswith("async def run(x):\n    return await double.ainvoke(")


def test_whole_agent_asks_for_tests_and_a_server_and_shows_one_fresh_run() -> None:
    task = build(double(), plus(), workflow=flow(), whole={"tests": 3, "mcp": ["plus"]})
    assert task.payload["integration"] == {"llms": [], "mcp": ["plus"], "num_tests": 3, "is_installable": True}
    [run] = task.payload["e2e"]
    assert run == {"input": run["input"], "output": (run["input"] + 1) * 2}
    assert 100 <= run["input"] <= 900
    assert run["input"] not in [50, 60]
    assert set(task.hidden["solution"]) == {
        "agent/__init__.py", "agent/config.yml", "agent/register.py", "pyproject.toml", "scripts/setup_mcp.sh",
        "tests/test_tools.py",
    }  # fmt: skip


def test_tests_of_the_solution_hold_every_recorded_call() -> None:
    tool = double(body=REFUSING, raises="x is negative", inputs=[0, 5], errors=[-3])
    tests = build(tool, whole={"tests": 1, "mcp": []}).hidden["solution"]["tests/test_tools.py"]
    assert re.findall(r"\((-?\d+), (-?\d+)\),", tests) == [("4", "8"), ("0", "0"), ("5", "10")]
    assert '"value", [\n    -3,\n]' in tests


def test_shown_output_that_is_wrong_on_purpose_is_kept_apart() -> None:
    task = build(double(canaries=[{"input": 20, "output": 41}]), whole={"tests": 1, "mcp": []})
    assert task.payload["tools"][0]["examples"] == [{"input": 4, "output": 8}, {"input": 20, "output": 41}]
    assert task.hidden["canaries"] == [{"tool": "double", "input": 20, "output": 41}]
    assert [vector["input"] for vector in task.hidden["vectors"]] == [3, 7, 10]
    tests = task.hidden["solution"]["tests/test_tools.py"]
    assert "(4, 8)" in tests
    assert "41" not in tests


@pytest.mark.parametrize("kind", ["react_agent", "tool_calling_agent"])
def test_agent_with_an_llm_gets_drawn_runs_whose_script_gives_the_output(kind: str) -> None:
    task = build(double(), shout(), workflow_type=kind)
    assert task.payload["integration"] == {"llms": ["main"]}
    right = {"double": lambda x: str(2 * x), "shout": lambda text: f"{text.upper()}!"}
    runs = parse_hidden(task.hidden).e2e
    assert len(runs) == 6
    for run in runs:
        *calls, final = run.script
        wanted = " and ".join(f"{step['call']} for {next(iter(step['input'].values()))!r}" for step in calls)
        assert run.input == f"Please use {wanted}."
        assert len(calls) in (1, 2)
        assert run.output == final["final"].format(*(right[step["call"]](**step["input"]) for step in calls))
    assert {step["call"] for run in runs for step in run.script[:-1]} == {"double", "shout"}


def test_router_gets_drawn_runs_that_name_the_branch() -> None:
    hush = shout(
        name="hush", body="return text.lower() + config.end", draw={"text": {"kind": "choice", "values": "XYZ"}}
    )
    task = build(shout(), hush, workflow_type="router_agent")
    assert len(task.hidden["e2e"]) == 6
    assert {run["script"][0]["say"] for run in task.hidden["e2e"]} == {"shout", "hush"}
    outputs = {"shout": {"north": "NORTH!", "south": "SOUTH!"}, "hush": {"X": "x!", "Y": "y!", "Z": "z!"}}
    for run in task.hidden["e2e"]:
        [step] = run["script"]
        assert run["output"] == outputs[step["say"]][run["input"]]


def test_agent_whose_tools_refuse_everything_drawn_has_no_runs_and_is_refused() -> None:
    tool = double(body=RANGE, raises="x is not in 0..9", inputs=[0, 3, 9], errors=[-1, 10])
    assert "must have references, vectors and e2e cases, got 1, 3 and 0" in refused(tool, workflow_type="react_agent")


def test_same_source_gives_the_same_task_and_stays_as_it_is() -> None:
    one = source(double(), shout(), workflow_type="react_agent", whole={"tests": 2, "mcp": ["shout"]})
    before = copy.deepcopy(one)
    first, again = (build_task(one, "nat_agent/train/small", open_oracle()) for _ in range(2))
    assert first == again
    assert one == before
    other = build_task({**one, "id": "other"}, "nat_agent/train/small", open_oracle())
    assert other.hidden["e2e"] != first.hidden["e2e"]


def test_references_are_asked_all_at_once_and_then_their_mistakes() -> None:
    sandbox = OracleSandbox()
    tool = double(body=REFUSING, raises="x is negative", inputs=[0, 5], errors=[-3])
    build_task(source(tool, plus(), workflow_type="sequential_executor"), "t", ReferenceOracle(sandbox))
    first, *mistakes = [[(call["chain"], call["input"]) for call in job.arguments["calls"]] for job in sandbox.jobs]
    chain = ["double", "plus"]
    assert first == [
        (["double"], 4), (["double"], 0), (["double"], 5), (["double"], -3), (["plus"], 4), (["plus"], 3),
        (["plus"], 7), (["plus"], 10), (chain, 50), (chain, 60),
    ]  # fmt: skip
    assert mistakes == [
        [(["double"], 0), (["double"], 5), (["double"], -3)],
        [(["plus"], 3), (["plus"], 7), (["plus"], 10)],
    ]


def test_halves_are_read_back_as_records() -> None:
    task = build(double(), plus(), workflow=flow(), whole={"tests": 3, "mcp": ["plus"]})
    spec, hidden = parse_spec(task.payload), parse_hidden(task.hidden)
    assert [tool.name for tool in spec.functions] == ["double", "plus", "flow"]
    assert {mutant.tool for mutant in hidden.mutants} == {"double", "plus"}  # flow's code has no place for a mistake


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"examples": [False]}, "small: input text of shout must be str, got False. Quote it"),
        ({"inputs": ["up", 3]}, "small: input text of shout must be str, got 3. Quote it"),
        ({"errors": [None]}, "small: input text of shout must be str, got None. Quote it"),
        (
            {"args": {"text": "str", "times": "int"}, "examples": [{"text": "a", "times": 1.0}], "inputs": []},
            "small: input times of shout must be int, got 1.0. Quote it",
        ),
        ({"args": {"text": "list[str]"}}, "small: input text of shout must be list[str], got 'left'. Quote it"),
        (
            {"examples": ["left", "on"]},
            "small: visible examples must not be hidden inputs too, got ['on']. Change one",
        ),
    ],
)  # fmt: skip
def test_input_of_another_type_or_on_both_sides_is_refused(changes: dict[str, Any], reason: str) -> None:
    assert refused(shout(**changes), e2e=["go"]) == reason


def test_workflow_function_is_checked_like_a_tool() -> None:
    assert refused(double(), plus(), workflow=flow(inputs=[6, 8])).startswith("small: visible examples must not")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"examples": [-4]}, "double must answer -4, but raises ValueError: negative"),
        ({"inputs": [3, -7]}, "double must answer -7, but raises ValueError: negative"),
        ({"errors": [-1, 6]}, "double must raise ValueError for 6, but gives Answer(output=12, raises='', message='')"),
        (
            {"body": REFUSING.replace("ValueError", "KeyError"), "errors": [-1]},
            "double must raise ValueError for -1, but gives Answer(output=None, raises='KeyError'",
        ),
    ],
)
def test_reference_that_contradicts_the_source_is_refused(changes: dict[str, Any], reason: str) -> None:
    assert refused(double(body=REFUSING, raises="x is negative") | changes).startswith(reason)


def test_end_to_end_input_that_raises_is_refused() -> None:
    strict = double(body=REFUSING, raises="x is negative", inputs=[0, 5])
    assert refused(strict, e2e=[50, -2]) == "double must answer -2, but raises ValueError: negative"


def test_tools_and_workflow_that_do_not_fit_are_refused() -> None:
    assert "a single workflow must have one tool, got 2" in refused(double(), plus())
    said = refused(double(), plus(), workflow_type="sequential_executor", uses=["double", "pluss"])
    assert "workflow.uses and integration.mcp must name tools, got pluss" in said
    assert "must name tools, got triple" in refused(double(), whole={"tests": 1, "mcp": ["triple"]})


def test_inputs_that_notice_too_few_mistakes_are_refused_with_one_that_is_missed() -> None:
    assert refused(double(inputs=[2])) == f"small: inputs of double notice 1 of 2: {code('x + 2')}"
    both = refused(double(inputs=[2]), plus(), workflow_type="sequential_executor")  # plus has better ones
    assert both == f"small: inputs of double notice 1 of 2: {code('x + 2')}"
    # 1 is the only number for which x > 1 differs, and 7 + 1 needs one that is not positive
    assert refused(plus(body=STEP, inputs=[5, 9])).startswith("small: inputs of plus notice 3 of 5: ")


def test_four_of_five_noticed_mistakes_are_enough_and_the_fifth_is_not_kept() -> None:
    missed = code("x + 1 if x > 1 else 7")
    tool = plus(body=STEP, inputs=[5, -2])
    named = next(
        name for name in "abcdefgh" if missed in mutants_of(draft_of({"tools": [tool | {"name": name}]}), name)[:3]
    )
    kept = [mutant["source"] for mutant in build(tool | {"name": named}).hidden["mutants"]]
    assert len(kept) == MAX_MUTANTS == 3
    assert set(kept) < {
        code("x - 1 if x > 0 else 7"), code("x + 2 if x > 0 else 7"), code("x + 1 if x <= 0 else 7"),
        code("x + 1 if x > 0 else 8"),
    }  # fmt: skip


def test_refused_inputs_count_among_those_that_notice() -> None:
    tool = double(body=RANGE, raises="x is not in 0..9", inputs=[0, 3, 9], examples=[4])
    assert refused(tool, e2e=[5]).startswith("small: inputs of double notice 5 of 7: ")
    assert len(build(tool | {"errors": [-1, 10]}, e2e=[5]).hidden["mutants"]) == MAX_MUTANTS

"""From a recipe to a source: inputs, examples, refused inputs and runs, or a sentence why there can be none."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from mini_nat import OracleSandbox, open_oracle

from skyrl_nat.data.making.build import Source, build_task
from skyrl_nat.data.synthesis.complete import complete
from skyrl_nat.data.synthesis.compose import Recipe
from skyrl_nat.data.synthesis.family import Option, ToolVariant
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.errors import DataError

NUMBERS = {"kind": "integer", "low": 10, "high": 99_999}
WORDING = ("Triple x.", "Return x times 3.", "Three times x.")


def variant(name: str, body: str, **changes: Any) -> ToolVariant:
    options: dict[str, Any] = {"args": {"x": "int"}, "returns": "int", "does": WORDING, "draw": {"x": NUMBERS}}
    return ToolVariant(name=name, body=body, **(options | changes))


TRIPLE = variant("triple", "return x * 3")
PLUS = variant("plus", "return x + 1")
GUARDED = variant(
    "guarded", "if x < 0:\n    raise ValueError('negative')\nreturn x * 3", raises="x is negative", errors=[-1, -7],
    draw={"x": {"kind": "integer", "low": -9_999, "high": 99_999}},
)  # fmt: skip
LENGTH = variant(
    "length", "return len(text) * 7", args={"text": "str"},
    draw={"text": {"kind": "text", "alphabet": "abc", "min": 1, "max": 40}},
)  # fmt: skip
BOTH = variant(
    "both", "return f'{await triple.ainvoke(x)}/{await length.ainvoke(str(x))}'", returns="str",
    draw={"x": {"kind": "integer", "low": 100_000, "high": 999_999}},
)  # fmt: skip
FEW = {"kind": "choice", "values": [*range(101, 141)]}
"""So few that drawing again gives what has been drawn before."""


def recipe(*tools: ToolVariant, **changes: Any) -> Recipe:
    options = {"name": "small", "difficulty": 3, "families": ("f",), "description": "Small.", "seed": "s"} | changes
    return Recipe(tools=tools, **options)


def finish(*tools: ToolVariant, **changes: Any) -> Source:
    return complete(recipe(*tools, **changes), open_oracle())


def sequence(*tools: ToolVariant) -> Source:
    return finish(*tools, workflow_type="sequential_executor")


def reason(*tools: ToolVariant, **changes: Any) -> str:
    with pytest.raises(DataError) as caught:
        finish(*tools, **changes)
    return str(caught.value)


def at_most(limit: int, **changes: Any) -> ToolVariant:
    body = f"if x > {limit}:\n    raise ValueError('large')\nreturn x * 3"
    return variant("limited", body, raises=f"x is above {limit}", errors=[limit + 5, limit + 1], **changes)


def test_recipe_of_one_tool_becomes_a_source_with_its_inputs() -> None:
    source = finish(TRIPLE)
    assert set(source) == {"id", "difficulty", "description", "tools", "e2e"}
    assert (source["id"], source["difficulty"], source["description"]) == ("small", 3, "Small.")
    [tool] = source["tools"]
    assert (tool["name"], tool["args"], tool["returns"]) == ("triple", {"x": "int"}, "int")
    assert (tool["body"], tool["draw"], tool["does"] in WORDING) == ("return x * 3", {"x": NUMBERS}, True)
    assert (len(tool["examples"]), len(tool["inputs"]), len(source["e2e"])) == (3, 10, 4)
    assert tool["errors"] == []
    assert not {"raises", "options", "uses"} & set(tool)
    given = [*tool["examples"], *tool["inputs"]]
    assert len(set(given)) == 13
    assert all(10 <= value <= 99_999 for value in [*given, *source["e2e"]])
    assert not set(source["e2e"]) & set(tool["examples"])


def test_tool_may_have_behaviour_laws_options_and_a_rule_for_what_it_refuses() -> None:
    options = {"factor": Option(type="int", default=2, set=5), "end": Option(type="str", default="", set="!")}
    tool = variant(
        "scaled", "if x < 0:\n    raise ValueError('no')\nreturn str(x * config.factor) + config.end", returns="str",
        options=options, behaviour=["No blanks."], raises="x is negative", errors=[-1, -2], edges=[0],
        laws=[{"kind": "round_trip", "other": "scaled"}],
    )  # fmt: skip
    [found] = finish(tool)["tools"]
    assert found["options"] == {
        "factor": {"type": "int", "default": 2, "set": 5},
        "end": {"type": "str", "default": "", "set": "!"},
    }
    assert found["behaviour"] == ["No blanks."]
    assert found["laws"] == [{"kind": "round_trip", "other": "scaled"}]
    assert found["raises"] == "x is negative"
    assert found["errors"] == [-1, -2]


def test_edges_stand_first_among_the_hidden_inputs() -> None:
    [tool] = finish(replace(TRIPLE, edges=[7_000_000, -12, 8_000_000, -12]))["tools"]
    assert tool["inputs"][:3] == [7_000_000, -12, 8_000_000]
    assert -12 not in [*tool["inputs"][3:], *tool["examples"]]


def test_drawn_inputs_that_are_refused_follow_the_named_ones() -> None:
    source = finish(replace(GUARDED, edges=[-500, 0]))
    [tool] = source["tools"]
    assert tool["errors"][:3] == [-1, -7, -500]
    assert len(tool["errors"]) <= 5
    assert max(tool["errors"]) < 0
    assert tool["inputs"][0] == 0
    assert min([*tool["inputs"], *tool["examples"], *source["e2e"]]) >= 0


def test_workflow_function_uses_the_tools_and_has_inputs_of_its_own() -> None:
    source = finish(TRIPLE, LENGTH, workflow=BOTH)
    workflow = source["workflow"]
    assert workflow["uses"] == ["triple", "length"]
    assert (len(workflow["inputs"]), len(workflow["examples"]), len(source["e2e"])) == (10, 3, 4)
    assert [tool["name"] for tool in source["tools"]] == ["triple", "length"]
    assert "workflow_type" not in source
    assert "uses" not in source["tools"][0]
    task = build_task(source, "t", open_oracle())
    assert [run["output"] for run in task.hidden["e2e"]] == [f"{3 * x}/42" for x in source["e2e"]]
    assert min(source["e2e"]) >= 100_000  # what is drawn for the workflow function, not for its tools


def test_sequence_gets_inputs_of_its_first_tool_that_nothing_else_shows() -> None:
    first = replace(TRIPLE, draw={"x": FEW})
    for seed in "stuvw":
        source = finish(first, PLUS, workflow_type="sequential_executor", seed=seed)
        [found, _] = source["tools"]
        assert source["workflow_type"] == "sequential_executor"
        assert len(set(source["e2e"])) == len(source["e2e"]) == 4
        assert set(source["e2e"]) <= {*FEW["values"]} - {*found["inputs"], *found["examples"]}
        task = build_task(source, "t", open_oracle())
        assert [run["output"] for run in task.hidden["e2e"]] == [3 * x + 1 for x in source["e2e"]]


def test_runs_of_a_single_tool_differ_from_its_examples_and_from_each_other() -> None:
    for seed in "stuvw":
        source = finish(replace(TRIPLE, draw={"x": FEW}), seed=seed)
        assert len(set(source["e2e"])) == len(source["e2e"]) == 4
        assert not set(source["e2e"]) & set(source["tools"][0]["examples"])


def test_references_are_asked_many_inputs_at_once() -> None:
    """What they say of candidates, the mistakes of each tool, and the chain."""
    sandbox = OracleSandbox()
    complete(recipe(TRIPLE, PLUS, workflow_type="sequential_executor"), ReferenceOracle(sandbox))
    assert len(sandbox.jobs) == 4
    assert all(len(job.arguments["calls"]) >= 30 for job in sandbox.jobs)


def test_runs_leave_out_what_the_chain_refuses() -> None:
    source = sequence(PLUS, at_most(66_666))
    assert max(source["e2e"]) < 66_666
    assert max(source["tools"][0]["inputs"]) > 66_666


def test_chain_that_hardly_ever_works_is_refused() -> None:
    """Not half of what PLUS gives is small enough, and what is drawn for the second tool itself always is."""
    second = at_most(40_000, draw={"x": {"kind": "integer", "low": -900, "high": 0}})
    words, _, numbers = reason(PLUS, second, workflow_type="sequential_executor").partition(", got ")
    assert words == "plus then limited must answer most inputs"
    given, of = map(int, numbers.split(" of "))
    assert 13 < given < 20 < of <= 40


def test_chain_that_never_works_is_refused() -> None:
    second = at_most(0, draw={"x": {"kind": "integer", "low": -900, "high": 0}})
    said = reason(PLUS, second, workflow_type="sequential_executor")
    assert said == "plus+limited must give different answers, got [] among 0"


def test_chain_that_gives_one_answer_to_every_input_is_refused() -> None:
    """PLUS gives at least 11, and the second tool says the same of all that is above 0."""
    below = variant("below", "return min(x, 0)", draw={"x": {"kind": "integer", "low": -900, "high": 0}}, edges=[1])
    said = reason(PLUS, below, workflow_type="sequential_executor")
    assert said.startswith("plus+below must give different answers, got [('0', ")


@pytest.mark.parametrize(("body", "returns"), [("text.strip('a')", "str"), ("list(text.strip('a'))", "list[str]")])
def test_input_whose_answer_is_empty_is_no_run(body: str, returns: str) -> None:
    texts = ["a" * number for number in range(1, 15)] + ["b" * number + "x" for number in range(1, 31)]
    strip = variant(
        "strip", f"return {body}", args={"text": "str"}, returns=returns,
        draw={"text": {"kind": "choice", "values": texts}},
    )  # fmt: skip
    for seed in ("s", "t", "u"):
        source = finish(strip, seed=seed)
        assert len(source["e2e"]) == 4
        assert {text[0] for text in source["e2e"]} == {"b"}


def test_chain_with_too_few_fresh_inputs_is_refused() -> None:
    """Only thirteen texts get an answer that is not empty, and ten of them are hidden inputs already."""
    texts = [letter * count for letter in "abc" for count in range(2, 15)]
    full = [text for text in texts if text[0] == "b"]
    first = variant(
        "first", "return text + 'd'", args={"text": "str"}, returns="str", edges=full,
        draw={"text": {"kind": "choice", "values": texts}},
    )  # fmt: skip
    second = variant(
        "second", "return {'a': '', 'c': []}.get(text[:1], text)", args={"text": "str"}, returns="str",
        draw={"text": {"kind": "choice", "values": [*"defghijklmnopqrstuvwxyz"]}}, edges=["aa", "cc"],
    )  # fmt: skip
    words, _, number = reason(first, second, workflow_type="sequential_executor").partition(", got ")
    assert words == "first then second must have 4 end-to-end inputs"
    assert 0 <= int(number) <= 3


def test_agent_with_an_llm_gets_no_runs_here() -> None:
    for kind in ("react_agent", "tool_calling_agent", "router_agent"):
        source = finish(TRIPLE, PLUS, workflow_type=kind)
        assert (source["workflow_type"], source["e2e"]) == (kind, [])
        assert [len(tool["inputs"]) for tool in source["tools"]] == [10, 10]


def test_whole_agent_says_how_many_tests_and_what_is_served() -> None:
    assert finish(TRIPLE, num_tests=2, mcp=("triple",))["whole"] == {"tests": 2, "mcp": ["triple"]}
    assert finish(TRIPLE, num_tests=1)["whole"] == {"tests": 1, "mcp": []}
    assert "whole" not in finish(TRIPLE, mcp=("triple",))


def test_same_recipe_gives_the_same_source_and_another_seed_other_inputs() -> None:
    first, again = (finish(TRIPLE, LENGTH, workflow=BOTH) for _ in range(2))
    assert first == again
    other = finish(TRIPLE, LENGTH, workflow=BOTH, seed="t")
    assert other["tools"][0]["inputs"] != first["tools"][0]["inputs"]
    assert other["e2e"] != first["e2e"]


def test_seeds_choose_among_all_wordings() -> None:
    assert {finish(TRIPLE, seed=str(seed))["tools"][0]["does"] for seed in range(20)} == set(WORDING)


def test_source_is_a_copy_that_may_be_changed() -> None:
    tool = replace(TRIPLE, behaviour=["One."], laws=[{"kind": "odd"}], edges=[5])
    before = copy.deepcopy(tool)
    [found] = finish(tool)["tools"]
    for field in ("args", "draw", "behaviour", "laws", "inputs", "errors"):
        found[field].clear()
    assert tool == before


def test_several_arguments_are_given_as_an_object() -> None:
    area = variant(
        "area", "if width < 1:\n    raise ValueError('flat')\nreturn width * height",
        args={"width": "int", "height": "int"}, edges=[{"width": 1, "height": 7}],
        draw={"height": {"kind": "integer", "low": 2, "high": 99}, "width": {"kind": "integer", "low": 0, "high": 99}},
        raises="width is below 1", errors=[{"width": 0, "height": 4}, {"width": -3, "height": 4}],
    )  # fmt: skip
    source = finish(area)
    [tool] = source["tools"]
    assert all(list(value) == ["width", "height"] for value in [*tool["inputs"], *tool["examples"], *source["e2e"]])
    assert tool["errors"][:2] == [{"width": 0, "height": 4}, {"width": -3, "height": 4}]
    task = build_task(source, "t", open_oracle())
    assert all(case["output"] == case["input"]["width"] * case["input"]["height"] for case in task.hidden["vectors"])


def test_recipe_whose_tool_has_too_few_inputs_or_refuses_nothing_is_refused() -> None:
    few = replace(TRIPLE, draw={"x": {"kind": "integer", "low": 10, "high": 21}}, edges=range(10, 22))
    assert reason(few) == "triple must have 13 different inputs, got 12"
    assert reason(replace(GUARDED, errors=[-1, 4])) == "guarded must refuse 4, and answers 12"
    assert reason(replace(GUARDED, raises="", errors=[])).startswith("guarded must raise ValueError, and only where")


def test_key_of_a_recipe_names_what_runs_and_the_tools_whatever_their_order_or_seed() -> None:
    assert recipe(TRIPLE).key == "single/triple"
    assert recipe(TRIPLE, LENGTH, workflow=BOTH).key == "both/length+triple"
    assert recipe(TRIPLE, PLUS, workflow_type="react_agent").key == "react_agent/plus+triple"
    assert recipe(PLUS, TRIPLE, workflow_type="react_agent", seed="t", name="other").key == "react_agent/plus+triple"

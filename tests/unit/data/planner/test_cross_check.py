"""Versions of code that were written apart must agree, do what the examples show, and answer twice the same."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from mini_nat import OracleSandbox, open_oracle

from skyrl_nat.data.making.build import Source, build_task
from skyrl_nat.data.planner.cross_check import NUM_REFERENCES, checked_source
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.errors import DataError

WORDS = [
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "islet", "jetty",
    "knoll", "larch", "maple", "nadir", "ocean", "plain", "quarry", "river", "slope", "tulip",
]  # fmt: skip
"""Twenty texts without blanks: what is drawn in their likeness is one of them, so there are twenty candidates."""
SHOUT = "return text.upper() + '!'"
LIST = "seen = text\nreturn ''.join([seen.upper(), '!'])"
FORMAT = "return f'{text.upper()}!'"
VERSIONS = (SHOUT, LIST, FORMAT)


def shown(**cases: Any) -> list[dict[str, str]]:
    return [{"input": json.dumps(text), "output": json.dumps(output)} for text, output in cases.items()]


def tool(name: str = "shout", **changes: Any) -> dict[str, Any]:
    found = {
        "name": name, "arguments": [{"name": "text", "type": "str"}], "returns": "str", "behaviour": ["No blanks."],
        "description": "Return text in upper case with a mark.", "refuses_when": "", "refused_samples": [],
        "samples": [json.dumps(word) for word in WORDS], "examples": shown(left="LEFT!", right="RIGHT!"),
    }  # fmt: skip
    return found | changes


def draft(*tools: dict[str, Any], workflow: str = "single", difficulty: int = 2) -> dict[str, Any]:
    return {
        "name": "shouter", "description": "Shouts a text.", "difficulty": difficulty, "workflow": workflow,
        "tools": list(tools) or [tool()],
    }  # fmt: skip


def check(planned: Mapping[str, Any], *versions: str) -> Source:
    """Versions of a draft's only tool."""
    [only] = planned["tools"]
    return checked_source(planned, [{only["name"]: body} for body in versions], open_oracle())


def reason(planned: Mapping[str, Any], *versions: str) -> str:
    with pytest.raises(DataError) as caught:
        check(planned, *versions)
    return str(caught.value)


def except_for(words: list[str], body: str = SHOUT) -> str:
    """A version that answers otherwise for some texts."""
    return f"if text in {words!r}:\n    return text\n{body}"


def test_versions_that_agree_give_a_source_with_the_first_one_as_reference() -> None:
    source = check(draft(), *VERSIONS)
    assert (source["id"], source["difficulty"], source["description"]) == ("shouter", 2, "Shouts a text.")
    [found] = source["tools"]
    assert found["body"] == SHOUT
    assert found["examples"] == ["left", "right"]
    assert found["inputs"] == WORDS[:10]  # every text notices every mistake, so the first ones are taken
    assert found["errors"] == []
    assert source["e2e"] == WORDS[-4:]
    assert check(draft(), LIST, SHOUT, FORMAT)["tools"][0]["body"] == LIST


def test_source_becomes_a_task_with_the_right_answers() -> None:
    task = build_task(check(draft(), *VERSIONS), "t", open_oracle())
    assert task.payload["tools"][0]["examples"] == [
        {"input": "left", "output": "LEFT!"},
        {"input": "right", "output": "RIGHT!"},
    ]
    assert [case["output"] for case in task.hidden["vectors"]][:3] == ["AMBER!", "BIRCH!", "CEDAR!"]
    assert task.hidden["e2e"][-1] == {"input": "tulip", "output": "TULIP!"}


def test_same_draft_gives_the_same_source_and_stays_as_it_is() -> None:
    numbers = [json.dumps(number) for number in range(40, 90, 3)]
    planned = draft(
        tool(
            arguments=[{"name": "x", "type": "int"}], returns="int", samples=numbers,
            examples=[{"input": "5", "output": "10"}],
        )
    )  # fmt: skip
    before = copy.deepcopy(planned)
    first, again = (check(planned, "return x * 2", "return x + x") for _ in range(2))
    assert first == again
    assert planned == before
    drawn = set(first["e2e"])
    assert drawn <= set(range(40, 89))
    assert not drawn <= set(range(40, 90, 3))  # fresh ones in the likeness of the samples


def test_inputs_on_which_versions_disagree_are_dropped_and_no_others() -> None:
    """18 of 20 are just enough."""
    source = check(draft(), SHOUT, except_for([WORDS[0], WORDS[18]]), FORMAT)
    assert source["tools"][0]["inputs"] == WORDS[1:11]
    assert source["e2e"] == [WORDS[15], WORDS[16], WORDS[17], WORDS[19]]
    source = check(draft(), SHOUT, except_for([WORDS[0]]), except_for([WORDS[2]]))
    assert source["tools"][0]["inputs"] == [WORDS[1], *WORDS[3:12]]


@pytest.mark.parametrize("place", [1, 2])
def test_description_that_versions_read_differently_is_refused(place: int) -> None:
    versions = list(VERSIONS)
    assert len(versions) == NUM_REFERENCES
    versions[place] = except_for(WORDS[4:7])
    assert reason(draft(), *versions) == (
        "3 versions of shout must agree on 90% of the inputs, they do on 17 of 20: its description is ambiguous"
    )


def test_disagreements_of_all_versions_add_up() -> None:
    said = reason(draft(), SHOUT, except_for(WORDS[:2]), except_for(WORDS[1:4]))
    assert "3 versions of shout must agree on 90% of the inputs, they do on 16 of 20" in said


def test_version_that_refuses_what_another_answers_disagrees() -> None:
    strict = f"if text < 'd':\n    raise ValueError('early')\n{SHOUT}"
    assert "they do on 17 of 20" in reason(draft(), SHOUT, strict)
    assert "they do on 17 of 20" in reason(draft(tool(refuses_when="text is early")), strict, SHOUT)


def test_version_that_refuses_by_another_exception_disagrees() -> None:
    planned = draft(tool(refuses_when="text comes before d"))
    strict, other = (f"if text < 'd':\n    raise {name}('early')\n{SHOUT}" for name in ("ValueError", "KeyError"))
    assert "they do on 17 of 20" in reason(planned, strict, other)
    assert check(planned, strict, strict.replace("'early'", "text"))["tools"][0]["errors"] == WORDS[:3]


def test_answers_of_another_type_disagree_and_last_digits_do_not() -> None:
    numbers = [float(number) for number in range(1, 21)]
    planned = draft(
        tool(
            "third", arguments=[{"name": "x", "type": "float"}], returns="float",
            samples=list(map(json.dumps, numbers)), examples=[{"input": "600", "output": "200"}],
        )
    )  # fmt: skip
    found = check(planned, "return x / 3", "return x * (1 / 3)", "return x / 3 + 1e-9")
    assert found["tools"][0]["examples"] == [600.0]
    assert found["tools"][0]["inputs"] == numbers[:10]
    said = reason(planned, "return x / 3", "return x / 3 if x % 3 or x == 600 else int(x / 3)")
    assert said.startswith("2 versions of third must agree on 90% of the inputs, they do on ")


def test_example_that_the_code_does_not_give_is_refused() -> None:
    planned = draft(tool(examples=shown(left="LEFT!", right="RIGHT?")))
    assert reason(planned, *VERSIONS) == "version 0 of shout must give 'RIGHT?' for the example 'right', got 'RIGHT!'"
    raising = f"if text == 'left':\n    raise ValueError('no')\n{SHOUT}"
    said = reason(draft(), raising)
    assert said.startswith("version 0 of shout must give 'LEFT!' for the example 'left', got ")
    assert "ValueError" in said


def test_example_is_held_against_every_version() -> None:
    for versions in ((SHOUT, except_for(["right"]), FORMAT), (SHOUT, LIST, except_for(["right"]))):
        assert "of shout must give 'RIGHT!' for the example 'right', got 'right'" in reason(draft(), *versions)


def test_code_that_answers_otherwise_when_asked_again_is_refused() -> None:
    body = "import random\nif text in ('left', 'right'):\n    return text.upper() + '!'\nreturn str(random.random())"
    said = "shout must give the same answer twice, and does not"
    assert reason(draft(), body, SHOUT, FORMAT) == said
    rare = f"import random\nif text == 'tulip':\n    return str(random.random())\n{SHOUT}"
    assert reason(draft(), rare, SHOUT, FORMAT) == said  # one text is no matter of agreement
    assert check(draft(), SHOUT, rare)["tools"][0]["inputs"] == WORDS[:10]


@pytest.mark.parametrize("body", ["", " \n"])
def test_version_without_code_for_a_tool_is_refused(body: str) -> None:
    assert reason(draft(), body, SHOUT, SHOUT) == "every tool must have code, missing: shout"
    assert reason(draft(), SHOUT, SHOUT, body) == "every version must have code for every tool, missing: shout"


def test_version_that_leaves_a_tool_out_is_refused() -> None:
    planned = draft(tool(), tool("cry"), tool("yell"), workflow="react_agent")
    whole = dict.fromkeys(("shout", "cry", "yell"), SHOUT)
    with pytest.raises(DataError, match="every version must have code for every tool, missing: cry, yell"):
        checked_source(planned, [whole, whole, {"shout": SHOUT}], open_oracle())
    with pytest.raises(DataError, match="every tool must have code, missing: cry"):
        checked_source(planned, [{"shout": SHOUT, "yell": SHOUT}, whole], open_oracle())


def test_every_tool_is_checked() -> None:
    planned = draft(tool(), tool("cry"), workflow="react_agent")
    versions = [{"shout": SHOUT, "cry": SHOUT}, {"shout": SHOUT, "cry": except_for(WORDS[:3])}]
    with pytest.raises(DataError, match="2 versions of cry must agree on 90% of the inputs, they do on 17 of 20"):
        checked_source(planned, versions, open_oracle())


def test_example_is_never_a_hidden_input_or_a_run() -> None:
    [first, last] = (WORDS[2], WORDS[19])
    planned = draft(tool(examples=shown(**{first: "CEDAR!", last: "TULIP!"})))
    source = check(planned, *VERSIONS)
    assert source["tools"][0]["examples"] == ["cedar", "tulip"]
    assert source["tools"][0]["inputs"] == [word for word in WORDS[:10] if word != "cedar"]
    assert source["e2e"] == WORDS[15:19]
    twice = draft(tool(examples=[*shown(left="LEFT!"), *shown(right="RIGHT!"), *shown(left="LEFT!")]))
    assert check(twice, *VERSIONS)["tools"][0]["examples"] == ["left", "right"]


def test_refused_samples_become_errors_and_must_be_refused() -> None:
    strict = f"if text.isdigit():\n    raise ValueError('digits')\n{SHOUT}"
    planned = draft(tool(refuses_when="text is a number", refused_samples=['"12"', '"7"', '"12"']))
    [found] = check(planned, strict, strict)["tools"]
    assert (found["raises"], found["errors"]) == ("text is a number", ["12", "7"])
    assert reason(planned, SHOUT, SHOUT) == "shout must refuse '12', and answers '12!'"
    silent = draft(tool(refused_samples=['"12"']))
    assert reason(silent, strict, strict).startswith("shout must raise ValueError, and only where that is documented")


def test_draft_with_a_value_that_is_no_input_is_refused() -> None:
    assert "an input of shout must be str, got 5" in reason(draft(tool(samples=["5"])), *VERSIONS)
    assert "shout must have JSON values as text, got 'amber'" in reason(draft(tool(samples=["amber"])), *VERSIONS)


SIZE = {"returns": "int", "examples": shown(left=28, go=14), "description": "Return the letters times seven."}


def sequence(size: str, sandbox: OracleSandbox | None = None) -> Source:
    planned = draft(tool(), tool("size", **SIZE), workflow="sequential_executor")
    planned["tools"][1] |= {"samples": [json.dumps("x" * number) for number in range(3, 23)]}
    if "raise" in size:
        planned["tools"][1] |= {"refuses_when": "text begins with certain letters", "refused_samples": ['"A"']}
    oracle = ReferenceOracle(sandbox or OracleSandbox())
    return checked_source(planned, [{"shout": SHOUT, "size": size}, {"shout": FORMAT, "size": size}], oracle)


def test_sequence_runs_inputs_of_its_first_tool_through_all() -> None:
    source = sequence("return len(text) * 7")
    assert source["workflow_type"] == "sequential_executor"
    assert source["e2e"] == WORDS[-4:]
    task = build_task(source, "t", open_oracle())
    assert [run["output"] for run in task.hidden["e2e"]] == [49, 42, 42, 42]  # QUARRY! has seven letters


def test_references_are_asked_many_inputs_at_once() -> None:
    sandbox = OracleSandbox()
    sequence("return len(text) * 7", sandbox)
    assert [len(job.arguments["calls"]) for job in sandbox.jobs] == [
        *(20, 20),  # do the versions agree
        *(2, 2),  # do they give the examples
        *(40, 20, 20),  # what the references say, and their mistakes
        20,  # the chain
    ]


def size_but_for(last: str) -> str:
    return f"import re\nif re.fullmatch('[A-{last}].*', text):\n    raise ValueError('no')\nreturn len(text) * 7"


def test_runs_leave_out_what_a_later_tool_refuses_and_four_are_needed() -> None:
    assert sequence(size_but_for("P"))["e2e"] == ["quarry", "river", "slope", "tulip"]
    for last, count in (("Q", 3), ("Z", 0)):
        with pytest.raises(DataError, match=f"shout then size must answer 4 inputs, got {count}$"):
            sequence(size_but_for(last))


def test_agent_with_an_llm_gets_no_runs_here() -> None:
    for kind in ("react_agent", "tool_calling_agent", "router_agent"):
        source = check(draft(workflow=kind), *VERSIONS)
        assert (source["workflow_type"], source["e2e"]) == (kind, [])


def test_hard_draft_asks_for_a_whole_agent() -> None:
    assert check(draft(difficulty=4), *VERSIONS)["whole"] == {"tests": 2, "mcp": ["shout"]}
    assert "whole" not in check(draft(difficulty=3), *VERSIONS)


def test_inputs_that_only_some_versions_refuse_are_no_hidden_errors() -> None:
    """21 of 22 inputs have one answer; what a single version refuses may be its own mistake."""
    strict = f"if text in ('12', '7'):\n    raise ValueError('digits')\n{SHOUT}"
    lenient = f"if text == '7':\n    raise ValueError('digits')\n{SHOUT}"
    planned = draft(tool(refuses_when="text is a number", refused_samples=['"12"', '"7"']))
    for versions in ((strict, lenient, lenient), (strict, strict, lenient)):
        assert check(planned, *versions)["tools"][0]["errors"] == ["7"]
    assert check(planned, strict, strict, strict)["tools"][0]["errors"] == ["12", "7"]

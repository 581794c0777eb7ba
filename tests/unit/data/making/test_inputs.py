"""Inputs are chosen so that they notice mistakes; functions that refuse or repeat themselves too often are refused."""

import copy
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from mini_nat import OracleSandbox, open_oracle

from skyrl_nat.data.making.asker import Asker
from skyrl_nat.data.making.build import Source, draft_of
from skyrl_nat.data.making.inputs import NUM_DRAWN, check_variety, choose_inputs, distinct, draw_inputs
from skyrl_nat.environments.nat_agent.oracle import Answer, ReferenceOracle
from skyrl_nat.errors import DataError

POSITIVE = "if x < 0:\n    raise ValueError('negative')\nreturn x * 3"
SPECIAL = "if x == 500:\n    return 9\nreturn x * 3 + 1"
"""Any other number notices 5 of 7 mistakes; 500 notices 3, two of which no other number does."""
ROUND = "if x % 10 == 0 and x > 50:\n    raise ValueError('round')\nreturn x + 1"


def tool(body: str, name: str = "count", **changes: Any) -> dict[str, Any]:
    return {"name": name, "args": {"x": "int"}, "returns": "int", "does": "Count.", "body": body} | changes


def asker_of(*tools: Source, sandbox: OracleSandbox | None = None) -> Asker:
    oracle = open_oracle() if sandbox is None else ReferenceOracle(sandbox)
    return Asker(oracle, draft_of({"tools": list(tools)}))


def choose(source: Mapping[str, Any], drawn: Sequence[Any], refused: Sequence[Any] = ()) -> dict[str, Any]:
    found = copy.deepcopy(dict(source))
    choose_inputs(asker_of(found), [found], {found["name"]: list(drawn)}, {found["name"]: list(refused)})
    return found


def reason(source: Mapping[str, Any], drawn: Sequence[Any], refused: Sequence[Any] = ()) -> str:
    with pytest.raises(DataError) as caught:
        choose(source, drawn, refused)
    return str(caught.value)


def test_candidates_that_notice_alike_are_taken_in_their_order() -> None:
    found = choose(tool("return x * 2"), range(5, 25))
    assert found["inputs"] == [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert found["examples"] == [22, 23, 24]
    assert found["errors"] == []


def test_candidate_that_notices_what_no_other_does_is_taken_from_the_very_end() -> None:
    found = choose(tool(SPECIAL), [*range(11, 30), 500])
    assert found["inputs"] == [11, 12, 13, 14, 15, 16, 17, 18, 19, 500]
    assert found["examples"] == [27, 28, 29]


def test_candidate_that_notices_most_is_taken_before_those_that_stand_before_it() -> None:
    """[5] and [0, 3] would notice all five mistakes together, [1, 2] does so alone."""
    source = tool("return min(x) * 10 + max(x)", args={"x": "list[int]"})
    found = choose(source, [[5], [0, 3], *([x] for x in range(6, 16)), [1, 2], [16], [17]])
    assert found["inputs"] == [[5], [0, 3], [6], [7], [8], [9], [10], [11], [12], [1, 2]]
    assert found["examples"] == [[15], [16], [17]]


def test_inputs_and_examples_share_nothing_and_thirteen_candidates_are_just_enough() -> None:
    found = choose(tool("return x * 2"), range(5, 18))
    assert found["inputs"] + found["examples"] == list(range(5, 18))
    assert len(found["examples"]) == 3
    assert reason(tool("return x * 2"), range(5, 17)) == "count must have 13 different inputs, got 12"


def test_candidates_that_are_refused_do_not_count_towards_the_thirteen() -> None:
    source = tool(POSITIVE, raises="x is negative")
    assert reason(source, [*range(12), -1, -2, -3]) == "count must have 13 different inputs, got 12"
    assert len(choose(source, [*range(13), -1, -2, -3])["inputs"]) == 10


def test_refused_candidates_follow_the_named_ones_and_none_comes_twice() -> None:
    found = choose(tool(POSITIVE, raises="x is negative"), [-9, *range(20), -2, -1], [-1, -5])
    assert found["errors"] == [-1, -5, -9, -2]
    assert min(found["inputs"] + found["examples"]) >= 0


def test_at_most_five_refused_inputs_are_kept() -> None:
    found = choose(tool(POSITIVE, raises="x is negative"), [-11, -12, *range(20)], [-1, -2, -3, -4])
    assert found["errors"] == [-1, -2, -3, -4, -11]


def test_mistakes_that_refused_inputs_notice_need_no_other_input() -> None:
    """60 notices all that 55 does but one, which 10 notices too; without 60 the one to take first is 55."""
    source, drawn = tool(ROUND, raises="x is round"), [10, *range(1, 10), *range(11, 19), 55]
    found = choose(source, drawn, [60])
    assert found["inputs"] == [10, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert found["examples"] == [17, 18, 55]
    assert reason(source, drawn) == "inputs of count leave 3 of 9 mistakes unnoticed"


def test_mistakes_that_no_candidate_notices_are_counted() -> None:
    assert reason(tool(SPECIAL), range(11, 31)) == "inputs of count leave 2 of 7 mistakes unnoticed"


def test_four_of_five_mistakes_are_enough() -> None:
    source = tool("return x + 1 if x > 0 else 7")  # only 1 notices that 0 became 1
    assert reason(source, range(5, 25)) == "inputs of count leave 2 of 5 mistakes unnoticed"
    assert choose(source, [*range(5, 25), -4])["inputs"] == [*range(5, 14), -4]


def test_function_that_raises_without_a_word_is_refused() -> None:
    said = "count must raise ValueError, and only where that is documented, got ['ValueError']"
    assert reason(tool(POSITIVE), [*range(20), -1]) == said
    assert reason(tool(POSITIVE), range(20), [-1]) == said


def test_function_that_raises_anything_but_value_errors_is_refused_even_where_it_says_so() -> None:
    source = tool("if x > 30:\n    raise ValueError('large')\nreturn 100 // x", raises="x is zero or large")
    said = "count must raise ValueError, and only where that is documented, got ['ValueError', 'ZeroDivisionError']"
    assert reason(source, [*range(1, 20), 0, 31]) == said


def test_input_that_should_be_refused_and_is_answered_is_named() -> None:
    source = tool(POSITIVE, raises="x is negative")
    assert reason(source, range(20), [-1, 7, -2]) == "count must refuse 7, and answers 21"


def test_function_that_gives_one_answer_to_most_inputs_is_refused() -> None:
    said = reason(tool("return max(x, 11)"), range(1, 21))
    assert said == "count must give different answers, got [('11', 11)] among 20"
    assert len(choose(tool("return max(x, 10)"), range(1, 21))["inputs"]) == 10


def test_refused_inputs_are_no_answers_when_variety_is_measured() -> None:
    source = tool("if x > 20:\n    raise ValueError('large')\nreturn max(x, 11)", raises="x is above 20")
    assert "got [('11', 11)] among 20" in reason(source, range(1, 30))


def test_function_that_answers_nothing_is_refused() -> None:
    source = tool(POSITIVE, raises="x is negative")
    assert reason(source, range(-20, 0)) == "count must give different answers, got [] among 0"


@pytest.mark.parametrize(("returns", "most"), [("int", 10), ("str", 10), ("list[int]", 10), ("bool", 15)])
def test_one_answer_may_be_right_for_half_of_the_inputs_and_one_truth_for_three_quarters(
    returns: str, most: int
) -> None:
    def outputs(same: int) -> list[Any]:
        return [True] * same + ([False] * (20 - same) if returns == "bool" else list(range(20 - same)))

    check_variety("count", returns, outputs(most))
    with pytest.raises(DataError, match=re.escape(f"got [('true', {most + 1})] among 20")):
        check_variety("count", returns, outputs(most + 1))


def test_answers_of_different_types_are_different_answers() -> None:
    check_variety("count", "int", [1, 1.0, True, "1"])
    with pytest.raises(DataError, match="count must give different answers"):
        check_variety("count", "list[int]", [[1, 2], [1, 2], [2, 1]])


def test_every_function_gets_the_inputs_that_notice_its_own_mistakes() -> None:
    """The last candidate is needed for the first function's mistakes, and not for those of the second."""
    first, second = tool(SPECIAL, "first"), tool(POSITIVE, "second", raises="x is negative")
    drawn = {"first": [*range(11, 30), 500], "second": [0, *range(50, 69), -3]}
    choose_inputs(asker_of(first, second), [first, second], drawn, {"first": [], "second": [-4]})
    assert (first["inputs"], first["examples"], first["errors"]) == ([*range(11, 20), 500], [27, 28, 29], [])
    assert (second["inputs"], second["examples"], second["errors"]) == ([0, *range(50, 59)], [66, 67, 68], [-4, -3])


def test_choice_asks_its_sandbox_twice_however_many_candidates_there_are() -> None:
    source, sandbox = tool(POSITIVE, raises="x is negative"), OracleSandbox()
    drawn, refused = {"count": [*range(40), -2]}, {"count": [-1]}
    choose_inputs(asker_of(source, sandbox=sandbox), [source], drawn, refused)
    assert [len(job.arguments["calls"]) for job in sandbox.jobs] == [42, 42]
    assert [len(job.arguments["variants"]) for job in sandbox.jobs] == [1, 5]  # the reference, and four mistakes


def test_inputs_are_drawn_by_the_generators_in_the_order_of_the_arguments() -> None:
    one = tool("return x", draw={"x": {"kind": "integer", "low": 3, "high": 8}})
    drawn = draw_inputs(one, random.Random(1))
    assert len(drawn) == NUM_DRAWN == 40
    assert set(drawn) == {3, 4, 5, 6, 7, 8}
    assert drawn == draw_inputs(one, random.Random(1)) != draw_inputs(one, random.Random(2))
    two = tool("return x", args={"x": "int", "word": "str"})
    two["draw"] = {"word": {"kind": "choice", "values": ["a", "b"]}, "x": {"kind": "integer", "low": 7, "high": 7}}
    values = draw_inputs(two, random.Random(1))
    assert [list(value) for value in values] == [["x", "word"]] * 40
    assert {(value["x"], value["word"]) for value in values} == {(7, "a"), (7, "b")}


def test_distinct_values_keep_their_order_and_their_types() -> None:
    values = [3, 1, True, 1.0, "1", [1], [1], 3, None, 1, {"a": 1}, {"a": 1}]
    assert list(map(repr, distinct(values))) == ["3", "1", "True", "1.0", "'1'", "[1]", "None", "{'a': 1}"]


def test_asker_asks_many_calls_at_once_and_none_of_them_again() -> None:
    sandbox = OracleSandbox()
    ask = asker_of(tool("return x * 2", "double"), tool("return x + 1", "plus"), sandbox=sandbox)
    ask.fetch([(("double",), 5), (("double", "plus"), 5), (("plus",), 5), (("double",), 5)])
    assert [ask.output("double", 5), ask.output("double", 5, "plus"), ask.output("plus", 5)] == [10, 11, 6]
    assert [len(job.arguments["calls"]) for job in sandbox.jobs] == [3]
    ask.fetch([(("plus",), 5), (("plus",), 6)])
    assert [call["input"] for call in sandbox.jobs[1].arguments["calls"]] == [6]
    ask.fetch([(("plus",), 6)])
    assert len(sandbox.jobs) == 2


def test_asker_tells_numbers_and_truths_apart() -> None:
    ask = asker_of(tool("return type(x).__name__", "kind"))
    assert [ask.output("kind", value) for value in (1, 1.0, True, "1")] == ["int", "float", "bool", "str"]


def test_asker_says_what_a_function_should_have_done() -> None:
    ask = asker_of(tool(POSITIVE), tool("return 1 // x", "share"))
    assert ask.answer("count", -1) == Answer(raises="ValueError", message="negative")
    assert ask.raised("count", -1) == "ValueError"
    with pytest.raises(DataError, match="count must answer -1, but raises ValueError: negative"):
        ask.output("count", -1)
    with pytest.raises(DataError, match=r"count must raise ValueError for 2, but gives Answer\(output=6,"):
        ask.raised("count", 2)
    with pytest.raises(DataError, match=r"share must raise ValueError for 0, but gives .*raises='ZeroDivisionError'"):
        ask.raised("share", 0)


def test_asker_shows_which_inputs_a_changed_source_answers_otherwise() -> None:
    ask = asker_of(tool(POSITIVE, "triple"), tool("return x > 4", "large"))
    changed = [
        ("triple", "async def run(x):\n    return x + 2\n"),
        ("triple", "async def run(x):\n    if x < 0:\n        raise KeyError(x)\n    return x * 3.0\n"),
        ("large", "async def run(x):\n    return int(x >= 4)\n"),
    ]
    table = ask.differing(changed, {"triple": [1, 2, -5, -1], "large": [4, 5]})
    assert table[0] == [False, True, True, True]  # 1 + 2 is 3 as well
    assert table[1] == [True, True, True, True]  # 3.0 is not 3, a KeyError no ValueError
    assert table[2] == [True, True]  # 1 is not True


def test_messages_of_exceptions_are_no_difference() -> None:
    changed = draft_of({"tools": [tool(POSITIVE.replace("negative", "below zero"))]}).reference["count"].source
    assert "below zero" in changed
    assert asker_of(tool(POSITIVE)).differing([("count", changed)], {"count": [-1, 4]}) == [[False, False]]

"""Hermes tool calls in text."""

import pytest

from skyrl_nat.rollouts.tool_calls import ToolCall, split_tool_calls

ADD = ToolCall(name="add", arguments={"a": {"b": "</tool>"}})
WRITTEN = '<tool_call>\n{"name": "add", "arguments": {"a": {"b": "</tool>"}}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "rest", "calls"),
    [
        (WRITTEN, "", [ADD]),
        (f"first\n{WRITTEN}\n{WRITTEN} last", "first\n\n last", [ADD, ADD]),
        (WRITTEN.removesuffix("</tool_call>"), "", [ADD]),
        ('<tool_call>{"name": "now"}</tool_call>', "", [ToolCall(name="now", arguments={})]),
        (f"<tool_call>oops</tool_call>{WRITTEN}", "<tool_call>oops</tool_call>", [ADD]),
        ("<tool_call>" + "[" * 100_000, "<tool_call>" + "[" * 100_000, []),
        (
            '<tool_call>{"name": "", "arguments": {}}</tool_call>',
            '<tool_call>{"name": "", "arguments": {}}</tool_call>',
            [],
        ),
        ('<tool_call>{"name": "a", "arguments": 3}', '<tool_call>{"name": "a", "arguments": 3}', []),
        (" none ", " none ", []),
    ],
)
def test_well_formed_calls_are_taken_out_and_all_else_stays(text: str, rest: str, calls: list[ToolCall]) -> None:
    assert split_tool_calls(text) == (rest, calls)

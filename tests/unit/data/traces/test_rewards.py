"""Parts of a trace's reward and the rubric over them."""

import math

import pytest

from skyrl_nat.data.traces.asked_format import asked_files, asks_for_json, format_kept
from skyrl_nat.data.traces.code_pieces import place_inside, python_pieces
from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome, TraceStep
from skyrl_nat.data.traces.rewards import (
    TraceRewardConfig,
    TraceScorer,
    combine,
    completion,
    efficiency,
    syntax,
    tool_success,
)
from skyrl_nat.errors import ConfigError
from skyrl_nat.rewards.rubric import Rubric

USER = TraceStep(kind=StepKind.message, role="user", text="Do it")


def says(text: str, tokens: int | None = None) -> TraceStep:
    return TraceStep(kind=StepKind.message, text=text, num_completion_tokens=tokens)


def calls(tool: str = "bash", is_error: bool = False, **arguments: str) -> TraceStep:
    return TraceStep(kind=StepKind.tool, role="tool", tool=tool, arguments=arguments, is_error=is_error)


def trace(*steps: TraceStep, **fields) -> Trace:
    return Trace(**{"trace_id": "t", "source": "chat", "request": "Do it", "steps": steps} | fields)


def test_python_is_found_in_fenced_blocks_and_files_each_text_once() -> None:
    said = "```python\nx = 1\n```\n~~~py\n  y = 2\n~~~\n```bash\nls\n```\n"
    said += "```python\n>>> 1\n1\n```\n```python pkg/b.py\nz = 3\n```"
    found = python_pieces(trace(says(said), files={"/a.py": "x = 1\n", "empty.py": "\n", "notes.md": "x"}))
    assert [(piece.path, piece.source) for piece in found] == [
        ("pkg/b.py", "z = 3\n"),
        ("a.py", "x = 1\n"),
        ("fenced_block_5.py", "y = 2\n"),
    ]


def test_a_file_left_behind_stands_for_the_block_that_names_it() -> None:
    found = python_pieces(trace(says("```python a.py\nold = 1\n```"), files={"a.py": "new = 1\n"}))
    assert [piece.source for piece in found] == ["new = 1\n"]


def test_a_block_that_is_never_closed_and_one_inside_a_longer_fence() -> None:
    assert [p.source for p in python_pieces(trace(says("```python\na = 1")))] == ["a = 1\n"]
    nested = "````python\ntext = '''\n```\n'''\n````"
    assert [p.source for p in python_pieces(trace(says(nested)))] == ["text = '''\n```\n'''\n"]


def test_paths_never_lead_out_of_the_work_folder() -> None:
    paths = ["/etc/x.py", "../../x.py", "a/./b.py", "\\w\\x.py", "/"]
    assert [place_inside(path) for path in paths] == ["etc/x.py", "x.py", "a/b.py", "w/x.py", "unnamed"]


def test_syntax_is_the_share_that_parses() -> None:
    assert syntax(trace(says("```python\nx = 1\n```\n```python\nx = = 1\n```"))) == 0.5
    assert syntax(trace(says("```python\nx = '\0'\n```"))) == 0.0
    assert syntax(trace(says("no code"))) is None


def test_tool_success_is_the_share_without_error() -> None:
    assert tool_success(trace(calls(), calls(is_error=True), calls(), says("done"))) == pytest.approx(2 / 3)
    assert tool_success(trace(says("done"))) is None


def test_completion_of_an_unknown_outcome_does_not_apply() -> None:
    values = {outcome: completion(trace(outcome=outcome)) for outcome in TraceOutcome}
    assert values == {"success": 1.0, "failure": 0.0, "error": 0.0, "unknown": None}


def test_efficiency_follows_its_formula() -> None:
    # 2 steps of 10 leave 0.8; 30 tokens of 100 leave 0.7; the user's message is no step of the agent
    assert efficiency(trace(USER, says("a", 30), calls()), max_steps=10, max_tokens=100) == pytest.approx(0.75)
    assert efficiency(trace(USER, says("a"), calls()), max_steps=10, max_tokens=100) == pytest.approx(0.8)
    assert efficiency(trace(*[calls()] * 11), max_steps=10, max_tokens=100) == 0.0
    assert efficiency(trace(USER), max_steps=10, max_tokens=100) is None


def test_efficiency_never_grows_with_steps_or_tokens() -> None:
    by_steps = [efficiency(trace(*[says("a", 0)] * n), max_steps=10, max_tokens=100) for n in range(1, 14)]
    by_tokens = [efficiency(trace(says("a", n)), max_steps=10, max_tokens=100) for n in range(0, 130, 10)]
    for values in (by_steps, by_tokens):
        assert values == sorted(values, reverse=True)
        assert values[0] > values[-1]


@pytest.mark.parametrize(
    ("request_text", "files"),
    [
        ("Write `pkg/register.py` and config.yml.", ["pkg/register.py", "config.yml"]),
        ("Read data.csv and write out.csv", ["out.csv"]),
        ("Write the totals of data.csv to out.json", ["out.json"]),
        ("Write tests for a.py in test_a.py", ["test_a.py"]),
        ("Write a tool that reads data.csv and saves out.json", []),
        ("Fix the bug in a.py. Then create b.py.", ["b.py"]),
        ("What does main.py do?", []),
        ("Build v1.2 as described at https://x.org/a.html", []),
    ],
)
def test_files_are_asked_for_only_where_the_request_says_so(request_text: str, files: list[str]) -> None:
    assert asked_files(request_text) == files


@pytest.mark.parametrize(
    ("request_text", "is_asked"),
    [
        ("List them. Answer with JSON only.", True),
        ("Please return a JSON object", True),
        ("The answer must be valid JSON.", True),
        ("1. Reply in json", True),
        ("Write a tool that returns JSON.", False),
        ("Return the parsed settings.json", False),
        ("What is JSON?", False),
    ],
)
def test_json_is_asked_for_only_where_it_is_the_answer(request_text: str, is_asked: bool) -> None:
    assert asks_for_json(request_text) is is_asked


def test_format_is_the_share_of_what_was_asked_for() -> None:
    asked = "Write pkg/a.py, b.json and c.md. Answer with JSON."
    steps = (
        calls("edit", path="/workspace/pkg/a.py", file_text="x = 1"),
        calls("edit", is_error=True, path="c.md", file_text="x"),
        calls("view", path="c.md"),
        says('```json\n{"done": true}\n```'),
    )
    # a.py and the answer hold; b.json is no JSON; c.md was looked at and failed to be written
    assert format_kept(trace(*steps, request=asked, files={"b.json": "{'a': 1}"})) == 0.5
    assert format_kept(trace(*steps, request="Do it")) is None


def test_format_refuses_what_is_almost_json() -> None:
    answers = {'{"a": 1}': 1.0, '{"a": NaN}': 0.0, "Here: {}": 0.0, "```\n[1]\n```": 1.0, "": 0.0, "[" * 10**5: 0.0}
    assert {text: format_kept(trace(says(text), request="Return JSON")) for text in answers} == answers


def test_parts_that_do_not_apply_are_left_out_and_the_rest_is_scaled() -> None:
    config = TraceRewardConfig(weights={"completion": 0.5, "tool_success": 0.25, "efficiency": 0})
    score = TraceScorer(config).score(trace(calls(), calls(is_error=True), outcome=TraceOutcome.success))
    assert score.parts == {"tool_success": 0.5, "completion": 1.0}
    assert score.reward == pytest.approx((0.5 * 1.0 + 0.25 * 0.5) / 0.75)
    assert score.left_out == {
        "executes": "not set up",
        "syntax": "does not apply",
        "format": "does not apply",
        "learned": "not set up",
    }


def test_where_no_part_applies_there_is_no_reward() -> None:
    score = TraceScorer(TraceRewardConfig()).score(trace(USER))
    assert (score.reward, score.parts) == (None, {})


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1.5, -0.1, "1", True])
def test_ds_14_odd_numbers_never_leave_the_rubric(odd: object) -> None:
    score = combine(Rubric(weights={"a": 1.0, "b": 3.0}), {"a": 0.25, "b": odd}, {})
    assert (score.reward, score.parts) == (0.25, {"a": 0.25})
    assert score.left_out == {"b": f"not a number in [0, 1]: {odd!r}"}


def test_a_learned_reward_that_says_nan_is_left_out() -> None:
    scorer = TraceScorer(TraceRewardConfig(), learned=lambda _: math.nan)
    score = scorer.score(trace(outcome=TraceOutcome.failure))
    assert (score.reward, score.left_out["learned"]) == (0.0, "not a number in [0, 1]: nan")


def test_a_reward_given_before_is_kept_and_the_parts_are_noted() -> None:
    scorer = TraceScorer(TraceRewardConfig())
    fresh = scorer.apply(trace(outcome=TraceOutcome.success, labels={"label": False}))
    assert (fresh.reward, fresh.labels) == (1.0, {"label": False, "parts": {"completion": 1.0}})
    assert scorer.apply(trace(outcome=TraceOutcome.success, reward=0.25)).reward == 0.25


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": {"speed": 1.0}}, "must be one of executes"),
        ({"weights": {"syntax": math.nan}}, "must be a finite number >= 0"),
        ({"weights": {"syntax": -1}}, "must be a finite number >= 0"),
        ({"weights": dict.fromkeys(TraceRewardConfig().all_weights(), 0)}, "leave one weight above 0"),
        ({"max_steps": 0}, "max_steps must be > 0"),
        ({"code_timeout_s": math.inf}, "must be a finite number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TraceRewardConfig(**settings)

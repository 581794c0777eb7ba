import time

import pytest

from skyrl_nat.environments.nat_agent.actions import Action, parse_actions, path_error


def create(path: str, text: str) -> Action:
    return Action(name="create", arguments={"path": path, "file_text": text})


def test_function_call_gives_its_parameters_without_the_first_line_break() -> None:
    text = (
        "I write it.\n<function=create>\n<parameter=path>agent/register.py</parameter>\n"
        "<parameter=file_text>\nx = 1\nif x < 2:\n    y = '</p>'\n</parameter>\n</function>\nDone."
    )
    assert parse_actions(text) == [create("agent/register.py", "x = 1\nif x < 2:\n    y = '</p>'\n")]


def test_several_calls_and_fences_keep_their_order() -> None:
    text = (
        "```python agent/register.py\nx = 1\n```\n"
        "<function=create><parameter=path>a/b.yml</parameter><parameter=file_text>k: 1</parameter></function>\n"
        "```yaml agent/config.yml\nw: 2\n```\n<function=finish></function>"
    )
    actions = parse_actions(text)
    assert [a.name for a in actions] == ["create", "create", "create", "finish"]
    assert [a.arguments.get("path") for a in actions] == [
        "agent/register.py",
        "a/b.yml",
        "agent/config.yml",
        None,
    ]
    assert actions[0].arguments["file_text"] == "x = 1\n"


@pytest.mark.parametrize(
    "text",
    [
        "```agent/register.py\nx\n```",
        "```py agent/register.py\nx\n```",
        "```python\n# agent/register.py\nx\n```",
        "```python agent/register.py\nx\n",
        "```python ./agent/register.py\nx\n```",
    ],
)
def test_every_way_to_name_a_fenced_file(text: str) -> None:
    assert parse_actions(text) == [create("agent/register.py", "x\n")]


def test_fence_without_a_path_is_only_text() -> None:
    assert parse_actions("```python\nx = 1\n```") == []
    assert parse_actions("no action at all") == []


def test_cut_at_the_stop_word_is_accepted() -> None:
    assert parse_actions("<function=finish>") == [Action(name="finish", arguments={})]
    cut = "<function=create><parameter=path>a.py</parameter><parameter=file_text>x = 1</parameter>\n"
    assert parse_actions(cut) == [create("a.py", "x = 1")]


def test_unclosed_call_ends_where_the_next_begins() -> None:
    text = "<function=view><parameter=path>a.py</parameter>\n<function=validate></function>"
    assert [a.name for a in parse_actions(text)] == ["view", "validate"]


def test_openhands_editor_name_is_understood() -> None:
    text = (
        "<function=str_replace_editor><parameter=command>create</parameter><parameter=path>/workspace/a.py</parameter>"
        "<parameter=file_text>x</parameter></function>"
    )
    assert parse_actions(text) == [create("a.py", "x")]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("<function=rm></function>", "unknown function"),
        (
            "<function=create><parameter=path>a.py</parameter></function>",
            "needs parameter file_text",
        ),
        ("<function=view></function>", "needs parameter path"),
        ("```python ../../etc/x.py\nx\n```", "must be relative"),
        ("```python /etc/x.py\nx\n```", "must be relative"),
    ],
)
def test_malformed_calls_say_what_is_wrong(text: str, error: str) -> None:
    (action,) = parse_actions(text)
    assert error in action.error


def test_paths_that_cannot_be_written() -> None:
    assert path_error("agent/register.py") == ""
    for path in (
        "",
        ".",
        "..",
        "a/../../b.py",
        "/a.py",
        "a.sh",
        "a\x00.py",
        "a\\b.py",
        "x" * 130 + ".py",
    ):
        assert path_error(path) != "", path


def test_long_hostile_text_is_parsed_in_linear_time() -> None:
    started = time.monotonic()
    for piece in (
        "<function=",
        "<function=a>",
        "<parameter=x>",
        "```\n",
        "```a.py\n",
        "<function=view><parameter=path>",
    ):
        parse_actions(piece * 5_000)
    assert time.monotonic() - started < 5.0


@pytest.mark.parametrize("thought", ["<think>steps</think>", "steps</think>", "<think>steps", ""])
def test_a_thought_with_both_tags_or_one_or_none_changes_no_action(thought: str) -> None:
    """MT-05: the generation prompt may have opened the thought already, or nobody closed it."""
    answer = "\n<function=create><parameter=path>a.py</parameter><parameter=file_text>x</parameter></function>"
    assert parse_actions(thought + answer) == [create("a.py", "x")]

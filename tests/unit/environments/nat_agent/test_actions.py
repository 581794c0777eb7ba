"""Both forms of a message: what is read, what is refused, what is never looked at."""

import time

import pytest

from skyrl_nat.environments.nat_agent.actions import Action, clean_path, parse_actions, parse_call, path_error


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
    assert path_error("agent/register.py", is_new=True) == ""
    assert path_error("scripts/setup_mcp.sh", is_new=True) == ""
    for path in (
        "",
        ".",
        "/workspace",
        "..",
        "a/../../b.py",
        "/a.py",
        "a.cfg",
        "a\x00.py",
        "a\\b.py",
        "x" * 130 + ".py",
    ):
        assert path_error(clean_path(path), is_new=True) != "", path


def test_paths_that_can_be_looked_at() -> None:
    for path, clean in (
        ("", "."),
        ("/workspace", "."),
        ("/workspace/a/b.py", "a/b.py"),
        ("./a//b", "a/b"),
        ("Makefile",) * 2,
    ):
        assert (clean_path(path), path_error(clean)) == (clean, "")


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
        parse_call(piece * 5_000)
        parse_call("<function=execute_bash>" + piece * 5_000)
    assert time.monotonic() - started < 5.0


@pytest.mark.parametrize("thought", ["<think>steps</think>", "steps</think>", "<think>steps", ""])
def test_a_thought_with_both_tags_or_one_or_none_changes_no_action(thought: str) -> None:
    """MT-05: the generation prompt may have opened the thought already, or nobody closed it."""
    answer = "\n<function=create><parameter=path>a.py</parameter><parameter=file_text>x</parameter></function>"
    assert parse_actions(thought + answer) == [create("a.py", "x")]


def call(name: str, close: str = "</function>", **parameters: str) -> str:
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters.items())
    return f"<function={name}>\n{values}{close}"


@pytest.mark.parametrize("close", ["</function>", "</function", "", "\n"])
def test_a_call_is_whole_with_or_without_its_stop_word(close: str) -> None:
    action = parse_call("I look.\n" + call("execute_bash", close, command="ls -a\nwc x"))
    assert action == Action(name="execute_bash", arguments={"command": "ls -a\nwc x"})


def test_only_the_first_call_counts_and_nothing_after_it_is_read() -> None:
    first = call("validate")
    for rest in (call("finish"), "<function=rm>", "```python a.py\nx\n```", "<parameter=path>x</parameter>"):
        assert parse_call(first + rest) == Action(name="validate", arguments={})
    assert parse_call(call("run_tests", "") + call("finish")) == Action(name="run_tests", arguments={})


def test_calls_inside_a_value_are_text() -> None:
    text = 'x = "<function=finish></function>"\n'
    action = parse_call(call("str_replace_editor", command="create", path="a.py", file_text=text))
    assert action == create("a.py", text + "\n")


def test_a_file_keeps_its_last_line_break_and_other_values_lose_the_ones_around() -> None:
    assert parse_call(
        call("str_replace_editor", command="str_replace", path="a.py", old_str="\n  x", new_str="")
    ) == Action(name="str_replace", arguments={"path": "a.py", "old_str": "\n  x", "new_str": ""})
    created = call("str_replace_editor", command="create", path="/workspace/a.py", file_text="x")
    assert parse_call(created) == create("a.py", "x\n")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "must hold one function call"),
        ("<function=>", "must hold one function call"),
        ("```python a.py\nx\n```", "must hold one function call"),
        (call("create", path="a.py", file_text="x"), "unknown function 'create'"),
        (call("execute_bash"), "needs parameter command"),
        ("<function=execute_bash>ls</function>", "needs parameter command"),
        (call("validate", path="a.py"), "has no parameter path; it takes none"),
        (call("execute_bash", command="ls", timeout="5"), "has no parameter timeout; it takes command"),
        (call("str_replace_editor", path="a.py"), "command must be one of view, create, str_replace, insert"),
        (call("str_replace_editor", command="undo_edit", path="a.py"), "got 'undo_edit'"),
        (call("str_replace_editor", command="create", path="a.py"), "create needs parameter file_text"),
        (call("str_replace_editor", command="view", path="../a.py"), "must be relative"),
        (call("run_tests", path="/etc"), "must be relative"),
        (call("str_replace_editor", command="create", path="a.cfg", file_text="x"), "must end with one of"),
        ("<function=execute_bash><parameter=command>ls", "must be closed with </parameter>"),
        ("<function=execute_bash>" + 2 * "<parameter=command>ls</parameter>", "must stand once"),
    ],
)
def test_a_call_that_is_not_well_formed_says_what_must_hold(text: str, error: str) -> None:
    action = parse_call(text)
    assert error in action.error
    assert len(action.error) < 250

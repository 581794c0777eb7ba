"""Edits, views, and what a shell command leaves behind."""

import pytest

from skyrl_nat.environments.nat_agent.static_checks import MAX_FILE_CHARS, MAX_FILES
from skyrl_nat.environments.nat_agent.workspace import BashResult, edit, files_at, take_over


def run(files: dict[str, str], command: str, path: str = "a.py", **arguments: str) -> str:
    return edit(files, command, {"path": path, **arguments})


def test_view_numbers_lines_and_takes_a_range() -> None:
    files = {"a.py": "one\ntwo\nthree\n"}
    assert run(files, "view") == "    1\tone\n    2\ttwo\n    3\tthree"
    assert run(files, "view", view_range="[2, 2]") == "    2\ttwo"
    assert run(files, "view", view_range="[2, -1]") == "    2\ttwo\n    3\tthree"
    assert run(files, "view", view_range="[3, 99]") == "    3\tthree"
    assert run({"a.py": ""}, "view") == "the file is empty"


@pytest.mark.parametrize(
    "view_range", ["1", "[1]", "[1, 2, 3]", '["1", 2]', "[1.5, 2]", "[1, 1e999]", "[0, 1]", "[3, 2]", "x", "[" * 9999]
)
def test_a_view_range_that_cannot_be_is_refused(view_range: str) -> None:
    assert run({"a.py": "one\ntwo\n"}, "view", view_range=view_range).startswith("error: view_range must")


def test_view_of_a_folder_lists_it() -> None:
    files = {"agent/register.py": "x\n", "agent/sub/b.py": "", "c.md": "1\n2"}
    assert run(files, "view", ".") == "agent/register.py (1 lines)\nagent/sub/b.py (0 lines)\nc.md (2 lines)"
    assert run(files, "view", "agent/sub") == "agent/sub/b.py (0 lines)"
    assert run(files, "view", "age") == f"error: there is no file age; there are {', '.join(sorted(files))}"
    assert run({}, "view", ".") == "there are no files yet"
    assert files_at(files, "agent") == ("agent/register.py", "agent/sub/b.py")
    assert files_at(files, "c.md") == ("c.md",)


def test_replacement_must_match_exactly_once() -> None:
    files = {"a.py": "x = 1\ny = 1\n"}
    assert "occurs 2 times" in run(files, "str_replace", old_str="= 1", new_str="= 2")
    assert "occurs 0 times" in run(files, "str_replace", old_str="", new_str="= 2")
    assert "there is no file b.py" in run(files, "str_replace", "b.py", old_str="x")
    assert run(files, "str_replace", old_str="x = 1", new_str="x = 2") == "saved a.py (2 lines)"
    assert run(files, "str_replace", old_str="y = 1\n") == "saved a.py (1 lines)"
    assert files == {"a.py": "x = 2\n"}


@pytest.mark.parametrize(
    ("before", "line", "after"),
    [
        ("a\nb\n", "0", "new\na\nb\n"),
        ("a\nb\n", "1", "a\nnew\nb\n"),
        ("a\nb\n", " 2 ", "a\nb\nnew\n"),
        ("a\nb", "2", "a\nb\nnew"),
        ("", "0", "new\n"),
    ],
)
def test_insert_puts_text_after_a_line(before: str, line: str, after: str) -> None:
    files = {"a.py": before}
    assert run(files, "insert", insert_line=line, new_str="new").startswith("saved")
    assert files == {"a.py": after}


@pytest.mark.parametrize("line", ["3", "-1", "1.0", "true", "x", "", "9" * 5000])
def test_insert_line_must_be_there(line: str) -> None:
    files = {"a.py": "a\nb\n"}
    assert "insert_line must be a number from 0 to 2" in run(files, "insert", insert_line=line, new_str="new")
    assert files == {"a.py": "a\nb\n"}


def test_number_and_size_of_files_are_bounded() -> None:
    files: dict[str, str] = {}
    for index in range(MAX_FILES + 3):
        answer = run(files, "create", f"f{index}.py", file_text="x")
    assert len(files) == MAX_FILES
    assert "no more are allowed" in answer
    assert "at most" in run(files, "create", "f0.py", file_text="x" * (MAX_FILE_CHARS + 1))
    assert files["f0.py"] == "x"


def test_a_path_is_not_a_file_and_a_folder_at_once() -> None:
    files = {"a.py": "", "b.py/c.py": ""}
    for path in ("a.py/d.py", "b.py"):
        assert "must not be a file and a folder" in run(files, "create", path, file_text="")


def test_a_command_replaces_the_workspace_except_what_breaks_a_limit() -> None:
    files = {"a.py": "old", "gone.py": "x"}
    after = {
        "a.py": "x" * (MAX_FILE_CHARS + 1),
        "Makefile": "all:\n",
        "b\u202e.py": "x",
        "__pycache__/a.txt": "x",
        ".pytest_cache/README.md": "x",
    }
    result = BashResult(
        end="done", exit_code=0, files=after, left_out=("big.bin: no text", "__pycache__/a.pyc: no text")
    )
    kept, left_out = take_over(files, result)
    assert kept == {"a.py": "old", "Makefile": "all:\n"}
    assert [reason.split()[0] for reason in left_out] == ["big.bin:", "a.py", "path"]


def test_files_that_were_there_come_first_where_there_is_room_for_some() -> None:
    after = {f"f{index:03}.py": "" for index in range(MAX_FILES + 5)} | {"z.py": "kept"}
    kept, left_out = take_over({"z.py": "old"}, BashResult(end="done", files=after))
    assert len(kept) == MAX_FILES
    assert kept["z.py"] == "kept"
    assert len(left_out) == 6


def test_a_command_that_left_nothing_readable_changes_nothing() -> None:
    files = {"a.py": "x"}
    assert take_over(files, BashResult(end="timeout")) == (files, [])

"""What can be said about an answer without running it: files, Python, YAML, tests, start script, entry point."""

import time

import pytest
from nat_tasks import answer, halves, make_task

from skyrl_nat.environments.nat_agent.payload import AgentSpec
from skyrl_nat.environments.nat_agent.static_checks import (
    MAX_FILE_CHARS,
    MAX_FILES,
    StaticReport,
    check_files,
    is_test_file,
    load_yaml,
)

CODE = "@register_function(config_type=C)\nasync def f(config, builder):\n    yield 1\n"
CONFIG = "workflow:\n  _type: scale\n"
SCRIPT = "nat mcp serve --config_file agent/config.yml"


@pytest.fixture(scope="module")
def spec() -> AgentSpec:
    return halves(make_task("single", tools="scale"))[0]


@pytest.fixture(scope="module")
def whole() -> AgentSpec:
    return halves(make_task(mcp=["scale"], num_tests=2, is_installable=True))[0]


def test_whole_answer_has_full_shares_in_both_layouts(spec: AgentSpec) -> None:
    for root, source_root in (("", ""), ("src/", "src")):
        report = check_files(spec, {f"{root}agent/register.py": CODE, f"{root}agent/config.yml": CONFIG})
        assert report.findings == []
        assert (report.files_share, report.python_share, report.yaml_share) == (1.0, 1.0, 1.0)
        assert (report.source_root, report.module) == (source_root, "agent.register")


def test_rendered_answer_to_a_whole_task_has_everything_that_is_asked_for() -> None:
    task = make_task(mcp=["scale"], num_tests=2, is_installable=True)
    report = check_files(halves(task)[0], answer(task))
    assert (report.findings, report.suspicions) == ([], ())
    assert (report.script, report.is_installable, report.has_raise) == ("scripts/setup_mcp.sh", True, True)
    assert report.tests == tuple(f"tests/test_tools.py::test_{name}" for name in ("scale", "scale_refuses", "shout"))


def test_shares_grow_with_what_is_there(spec: AgentSpec) -> None:
    empty = check_files(spec, {})
    assert (empty.files_share, empty.python_share, empty.yaml_share) == (0.0, 0.0, 0.0)
    bare = check_files(spec, {"agent/register.py": "x = 1\n"})
    assert (bare.files_share, bare.python_share) == (0.5, 0.5)
    broken = check_files(spec, {"agent/register.py": "def f(:\n", "agent/config.yml": "a: [\n"})
    assert (broken.files_share, broken.python_share, broken.yaml_share) == (1.0, 0.0, 0.0)
    assert any("register.py:1:" in finding for finding in broken.findings)


def test_workflow_file_must_name_the_workflow_and_its_llm(spec: AgentSpec, whole: AgentSpec) -> None:
    def share(of: AgentSpec, text: str) -> float:
        return check_files(of, {"agent/config.yml": text}).yaml_share

    assert share(spec, CONFIG) == 1.0
    assert share(spec, "workflow:\n  _type: other\n") == share(spec, "[1]") == share(spec, "workflow: scale") == 0.5
    assert share(whole, "workflow: {_type: react_agent}\nllms: {other: {}}\n") == 0.5
    assert share(whole, "workflow: {_type: react_agent}\nllms: [main]\n") == 0.5
    assert share(whole, "workflow: {_type: react_agent}\nllms: {main: {}}\n") == 1.0


def test_duplicate_keys_are_refused_with_both_lines_nt_01() -> None:
    with pytest.raises(ValueError, match=r"'functions' stands twice, in lines 1 and 4"):
        load_yaml("functions:\n  a: 1\nworkflow: x\nfunctions: {}\n")
    with pytest.raises(ValueError, match=r"'model' stands twice, in lines 3 and 4"):
        load_yaml("llms:\n  main:\n    model: a\n    model: b\n")
    assert load_yaml("a: {k: 1}\nb: {k: 1}\n") == {"a": {"k": 1}, "b": {"k": 1}}


def test_aliases_and_merge_keys_are_refused_before_they_grow() -> None:
    lines = ["a0: &a0 {k: 1}"] + [f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}" for i in range(1, 40)]
    started = time.monotonic()
    for text in ("\n".join(lines), "a: &x [1]\nb: [*x, *x]\n", "a: &x [*x]"):
        with pytest.raises(ValueError, match=r"alias \*\w+ in line \d+|merge key"):
            load_yaml(text)
    with pytest.raises(ValueError, match="merge key << in line 1"):
        load_yaml("<<: {a: 1}\n")
    assert time.monotonic() - started < 1.0


@pytest.mark.parametrize(
    "text",
    [
        '!!int ""',
        "1" + ":00" * 400 + ".5",
        "!!bool maybe",
        "!!timestamp x",
        "!!map [1]",
        "!!float x",
        "2001-13-45",
        "!!python/name:os.x",
    ],
)
def test_tags_that_do_not_fit_are_findings(spec: AgentSpec, text: str) -> None:
    assert check_files(spec, {"agent/config.yml": f"a: {text}\n"}).yaml_share == 0.0


def test_hostile_texts_are_findings_and_never_exceptions(spec: AgentSpec) -> None:
    for code in ("(" * 5000, "\x00", "-" * 9000 + "1", "x = " + "9" * 6000, "[" * 900 + "]" * 900):
        assert check_files(spec, {"agent/register.py": code}).python_share in (0.0, 0.5)
    for config in ("[" * 3000, "? [a]\n: b", "!!python/object:os.system x", "a: " + "1" * 9000, "\x00", "%"):
        report = check_files(spec, {"agent/register.py": CODE, "agent/config.yml": config})
        assert report.yaml_share in (0.0, 0.5), config


def test_files_beyond_the_limits_are_left_out_with_a_finding(spec: AgentSpec) -> None:
    report = check_files(spec, {"agent/register.py": CODE, "agent/big.py": "#" * (MAX_FILE_CHARS + 1)})
    assert list(report.files) == ["agent/register.py"]
    assert "left out 1 files" in report.findings[0]
    many = check_files(spec, {f"{i}.txt": "" for i in range(MAX_FILES + 2)})
    assert len(many.files) == MAX_FILES
    assert "left out 2 files" in many.findings[0]


def test_file_called_config_is_preferred(spec: AgentSpec) -> None:
    files = {"agent/register.py": CODE, "a.yml": "x: 1", "agent/configs/config.yml": CONFIG}
    assert check_files(spec, files).config == "agent/configs/config.yml"
    assert check_files(spec, {"b.yaml": "", "a.yml": ""}).config == "a.yml"
    assert check_files(spec, {"agent/workflow.yaml": "", "a.yml": ""}).config == "agent/workflow.yaml"


def test_file_names_of_other_alphabets_are_kept_and_noticed(spec: AgentSpec) -> None:
    report = check_files(
        spec, {"\u0430gent/register.py": CODE, "agent/\U0001f600.py": "x = 1", "agent/config.yml": CONFIG}
    )
    assert "\u0430gent/register.py" in report.files
    assert (report.module, report.files_share) == ("", 0.5)
    assert [text.partition(":")[0] for text in report.suspicions] == ["letters that look alike"] * 2


@pytest.mark.parametrize(
    ("path", "verdict"),
    [("tests/test_a.py", True), ("a_test.py", True), ("test.py", False), ("tests/a.py", False), ("test_a.txt", False)],
)
def test_files_with_tests_are_told_by_their_name(path: str, verdict: bool) -> None:
    assert is_test_file(path) is verdict


def count_tests(spec: AgentSpec, text: str) -> StaticReport:
    return check_files(spec, {"agent/register.py": CODE, "tests/test_a.py": text})


def test_number_of_tests_is_a_finding_where_too_few(whole: AgentSpec) -> None:
    finding = "tests: at least 2 must be there, found {}"
    for count in range(4):
        report = count_tests(whole, "".join(f"def test_{i}(): ...\n" for i in range(count)))
        assert len(report.tests) == count
        assert (finding.format(count) in report.findings) == (count < 2)


def test_two_tests_of_one_name_are_one_test(whole: AgentSpec) -> None:
    assert count_tests(whole, "def test_a(): ...\n" * 5).tests == ("tests/test_a.py::test_a",)


def test_broken_test_file_is_a_finding_and_leaves_the_package_alone(whole: AgentSpec) -> None:
    report = count_tests(whole, "def test_a(:\n")
    assert (report.python_share, report.tests) == (1.0, ())
    assert any(finding.startswith("tests/test_a.py:1:") for finding in report.findings)


def test_only_the_packages_own_code_counts_as_hints_and_registration(whole: AgentSpec) -> None:
    report = check_files(whole, {"agent/register.py": "x = 1\n", "tests/test_a.py": CODE + "raise ValueError\n"})
    assert (report.python_share, report.has_raise, report.hint_share) == (0.5, False, 1.0)


@pytest.mark.parametrize(
    ("text", "is_accepted"),
    [
        (SCRIPT, True),
        (f"#!/bin/bash\nset -e\nexec {SCRIPT} --port 9901\n# the end\n\n", True),
        ("nat mcp serve --config_file=agent/config.yml", True),
        ("nat mcp serve \\\n  --config_file ./agent/config.yml", True),
        ("nat mcp serve --config_file 'agent/config.yml'", True),
        (f"{SCRIPT}\necho done", False),
        ("nat mcp serve --config_file other.yml", False),
        ("nat mcp serve", False),
        ("nat serve --config_file agent/config.yml", False),
        (f"echo {SCRIPT}", False),
        (f"# {SCRIPT}", False),
        (f"python fake.py '{SCRIPT}'", False),
        ("nat mcp serve --config_file 'agent/config.yml", False),
        ("", False),
    ],
)
def test_start_script_must_end_with_nats_server_on_the_own_config(
    whole: AgentSpec, text: str, is_accepted: bool
) -> None:
    for path in ("scripts/setup_mcp.sh", "setup_mcp.sh"):
        report = check_files(whole, {"agent/config.yml": CONFIG, path: text})
        assert report.script == (path if is_accepted else "")
        assert any(finding.startswith(f"{path}: the last command") for finding in report.findings) != is_accepted


def test_start_script_is_asked_for_only_where_tools_are_served(spec: AgentSpec, whole: AgentSpec) -> None:
    assert "scripts/setup_mcp.sh is missing" in check_files(whole, {}).findings
    assert check_files(spec, {"agent/config.yml": CONFIG, "scripts/setup_mcp.sh": SCRIPT}).script == ""
    assert not any("setup_mcp" in finding for finding in check_files(spec, {}).findings)


@pytest.mark.parametrize(
    ("text", "is_accepted"),
    [
        ('[project.entry-points."nat.components"]\nagent = "agent.register"\n', True),
        ("[project.entry-points.'nat.components']\nx = 'other.register'\ny = 'agent.register'\n", True),
        ("[project.entry-points.'nat.components']\nagent = 'agent'\n", False),
        ("[project.entry-points.nat.components]\nagent = 'agent.register'\n", False),
        ("[project]\nname = 'agent'\n", False),
        ("project = 3", False),
        ("[project.entry-points]\n'nat.components' = 'agent.register'\n", False),
        ("[[", False),
        ("", False),
        (f"x = {'1' * 5000}", False),
        (f"x = 0x{'f' * 4000}\n[project.entry-points.'nat.components']\nagent = 'agent.register'\n", True),
        (f"{'a.' * 60}a = 1\n[project.entry-points.'nat.components']\nagent = 'agent.register'\n", True),
        (f"{'a.' * 61}a = 1\n[project.entry-points.'nat.components']\nagent = 'agent.register'\n", False),
    ],
)
def test_entry_point_must_name_the_register_module(whole: AgentSpec, text: str, is_accepted: bool) -> None:
    report = check_files(whole, {"pyproject.toml": text})
    assert report.is_installable is is_accepted
    assert any(finding.startswith("pyproject.toml:") for finding in report.findings) != is_accepted


@pytest.mark.parametrize("part", ["a", '"\u2028"', '"\x85"'])
def test_key_of_thousands_of_parts_is_refused_at_once(whole: AgentSpec, part: str) -> None:
    """Whatever Python takes for the end of a line: TOML has lines of its own."""
    text = f"{'.'.join([part] * 4000)} = 1\n"
    assert len(text) <= MAX_FILE_CHARS
    started = time.monotonic()
    report = check_files(whole, {"pyproject.toml": text})
    assert time.monotonic() - started < 0.5
    assert any("a key of very many parts" in finding for finding in report.findings)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (f"0x{'f' * 4000}", "int"),
        ("[scale]", "list"),
        ("{a: b}", "dict"),
        ("3.5", "float"),
        ("", "None"),
        ("other", "other"),
        ("o" * 90, "o" * 60),
    ],
)
def test_workflow_type_that_is_no_text_is_shown_by_its_type(spec: AgentSpec, value: str, shown: str) -> None:
    report = check_files(spec, {"agent/config.yml": f"workflow: {{_type: {value}}}\n"})
    assert report.yaml_share == 0.5
    assert f"agent/config.yml: workflow._type must be scale, got {shown}" in report.findings


def test_class_named_by_a_number_is_no_type(spec: AgentSpec) -> None:
    code = f"class Z(object, name=0x{'f' * 4000}): pass\nclass Y(object, name='y'): pass\n"
    assert check_files(spec, {"agent/register.py": CODE + code}).own_types == ("y",)

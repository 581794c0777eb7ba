import time

import pytest

from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.payload import AgentSpec, parse_spec
from skyrl_nat.environments.nat_agent.static_checks import check_files, load_yaml

CODE = "@register_function(config_type=C)\nasync def f(config, builder):\n    yield 1\n"
CONFIG = "workflow:\n  _type: double_number\n"


@pytest.fixture(scope="module")
def spec() -> AgentSpec:
    tasks = {task.payload["name"]: task for task in load_tasks(["builtin:nat_agent/train"])}
    return parse_spec(tasks["double_number"].payload)


def test_whole_answer_has_full_shares_in_both_layouts(spec: AgentSpec) -> None:
    for root, source_root in (("", ""), ("src/", "src")):
        report = check_files(spec, {f"{root}agent/register.py": CODE, f"{root}agent/config.yml": CONFIG})
        assert report.findings == []
        assert (report.files_share, report.python_share, report.yaml_share) == (1.0, 1.0, 1.0)
        assert (report.source_root, report.module) == (source_root, "agent.register")


def test_shares_grow_with_what_is_there(spec: AgentSpec) -> None:
    empty = check_files(spec, {})
    assert (empty.files_share, empty.python_share, empty.yaml_share) == (0.0, 0.0, 0.0)
    bare = check_files(spec, {"agent/register.py": "x = 1\n"})
    assert (bare.files_share, bare.python_share) == (0.5, 0.5)
    broken = check_files(spec, {"agent/register.py": "def f(:\n", "agent/config.yml": "a: [\n"})
    assert (broken.files_share, broken.python_share, broken.yaml_share) == (1.0, 0.0, 0.0)
    assert any("register.py:1:" in finding for finding in broken.findings)


def test_duplicate_keys_are_refused_with_both_lines_nt_01() -> None:
    with pytest.raises(ValueError, match=r"'functions' stands twice, in lines 1 and 4"):
        load_yaml("functions:\n  a: 1\nworkflow: x\nfunctions: {}\n")
    with pytest.raises(ValueError, match=r"'model' stands twice, in lines 3 and 4"):
        load_yaml("llms:\n  main:\n    model: a\n    model: b\n")


def test_merge_keys_are_refused_before_they_grow() -> None:
    lines = ["a0: &a0 {k: 1}"] + [f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}" for i in range(1, 40)]
    started = time.monotonic()
    with pytest.raises(ValueError, match="merge key"):
        load_yaml("\n".join(lines))
    assert time.monotonic() - started < 1.0


def test_hostile_texts_are_findings_and_never_exceptions(spec: AgentSpec) -> None:
    for code in ("(" * 5000, "\x00", "-" * 9000 + "1", "x = " + "9" * 6000, "[" * 900 + "]" * 900):
        assert check_files(spec, {"agent/register.py": code}).python_share in (0.0, 0.5)
    for config in (
        "[" * 3000,
        "a: &x [*x]",
        "? [a]\n: b",
        "!!python/object:os.system x",
        "a: " + "1" * 9000,
        "\x00",
        "%",
    ):
        report = check_files(spec, {"agent/register.py": CODE, "agent/config.yml": config})
        assert report.yaml_share in (0.0, 0.5), config


def test_files_beyond_the_limits_are_left_out_with_a_finding(spec: AgentSpec) -> None:
    report = check_files(spec, {"agent/register.py": CODE, "agent/big.py": "#" * 20_001})
    assert list(report.files) == ["agent/register.py"]
    assert "left out 1 files" in report.findings[0]


def test_file_called_config_is_preferred(spec: AgentSpec) -> None:
    files = {"agent/register.py": CODE, "a.yml": "x: 1", "agent/configs/config.yml": CONFIG}
    assert check_files(spec, files).config == "agent/configs/config.yml"

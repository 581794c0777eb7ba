"""Real NAT in the real sandbox: what counts as evidence, and what every kind of failure says."""

import itertools
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from skyrl_nat.config.environment import EnvironmentConfig, SandboxConfig
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.payload import parse_spec
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator
from skyrl_nat.environments.nat_agent.visible import own_tests_report, visible_report
from skyrl_nat.sandbox.base import Sandbox
from skyrl_nat.sandbox.profiles import open_sandbox
from skyrl_nat.types import RewardResult, Task

pytestmark = pytest.mark.timeout(300)
REGISTER, CONFIG, TESTS = "agent/register.py", "agent/config.yml", "tests/test_tools.py"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_API_KEY", "dummy-secret-1")
        opened = open_sandbox(SandboxConfig(job_timeout_s=8.0, num_servers=2))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def validator(sandbox: Sandbox) -> Iterator[NatAgentValidator]:
    opened = NatAgentValidator(EnvironmentConfig(), sandbox)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    loaded = load_tasks(["builtin:nat_agent/train", "builtin:nat_agent/validation"])
    return {task.payload["name"]: task for task in loaded}


def answer(task: Task, *, head: str = "", body: str = "") -> dict[str, str]:
    """The honest files with the body of the (only) function replaced, or text put in front."""
    files = dict(task.hidden["solution"])
    code = files[REGISTER]
    if body:
        start = code.index("    async def run(")
        line = code[start : code.index("\n", start)]
        end = code.index("\n    yield run", start)
        code = code[:start] + line + "\n        " + body.replace("\n", "\n        ") + "\n" + code[end:]
    return files | {REGISTER: head + code}


def judge(validator: NatAgentValidator, task: Task, files: dict[str, str]) -> RewardResult:
    return validator.validate(task, {"files": files})


EARLY_EXITS = {
    "at import": {"head": "import os\nos._exit(0)\n"},
    "in the tool": {"body": "import os\nos._exit(0)"},
    "killed": {"body": "import os\nos.kill(os.getpid(), 9)"},
}


@pytest.mark.parametrize("name", EARLY_EXITS)
def test_early_exit_earns_nothing_sb_01(validator: NatAgentValidator, tasks: dict[str, Task], name: str) -> None:
    result = judge(validator, tasks["double_number"], answer(tasks["double_number"], **EARLY_EXITS[name]))
    assert result.total == 0.0
    assert "no complete result" in result.findings[0]
    assert "early end" in result.suspicions


@pytest.mark.parametrize(
    "head",
    [
        "print('2 passed in 0.01s')\nimport os\nos._exit(0)\n",
        "import atexit\natexit.register(print, '===== 9 passed =====')\n",
        'import os\nos.write(1, b\'{"stage": "build", "ok": true}\\n{"stage": "end"}\\n\')\n',
    ],
)
def test_printed_verdicts_earn_nothing_sb_02(validator: NatAgentValidator, tasks: dict[str, Task], head: str) -> None:
    files = answer(tasks["double_number"], head=head, body="print('===== 9 passed =====')\nreturn 0")
    assert judge(validator, tasks["double_number"], files).total == 0.0


def test_tests_that_vanished_count_as_failed_sb_04(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    task = tasks["trip_agent"]
    files = dict(task.hidden["solution"])
    vanished = (
        "import no_such_module\n\n\ndef test_x():\n    pass\n\n\ndef test_y():\n    pass\n\n\ndef test_z():\n    pass\n"
    )
    result = judge(validator, task, files | {"tests/test_more.py": vanished})
    assert result.parts["tools_tests"] == 0.5
    assert "own tests: 3 missing, such as tests/test_more.py::test_x" in result.findings


NOTHING_RAN = {
    "no tests collected sb-05 a": ("x = 1\n", "at least 3 must be there, found 0"),
    "module skipped sb-05 b": (
        "import pytest\npytest.skip('all', allow_module_level=True)\n\n\ndef test_a():\n    pass\n",
        "Skipped: all",
    ),
    "interpreter exit sb-05 c": ("import os\nos._exit(0)\n\n\ndef test_a():\n    pass\n", "own tests: 1 missing"),
}


@pytest.mark.parametrize("name", NOTHING_RAN)
def test_nothing_that_ran_earns_nothing_and_says_why_sb_05(
    validator: NatAgentValidator, tasks: dict[str, Task], name: str
) -> None:
    text, finding = NOTHING_RAN[name]
    result = judge(validator, tasks["trip_agent"], tasks["trip_agent"].hidden["solution"] | {TESTS: text})
    assert result.parts["tools_tests"] == 0.0
    assert any(finding in item for item in result.findings), result.findings


RIGHT_LOOKS = {
    "always equal": "class Any(int):\n    __eq__ = lambda s, o: True\n    __hash__ = None\nreturn Any(0)",
    "float subclass": "class F(float):\n    __sub__ = __rsub__ = lambda s, o: 0.0\nreturn F(x * 2)",
    "text subclass": "class S(str):\n    __eq__ = lambda s, o: True\n    __hash__ = None\nreturn S(x * 2)",
    "text for a number": "return str(x * 2)",
    "float for an int": "return float(x * 2)",
    "bool for an int": "return True",
    "memorised example": "return 8 if x == 4 else 0",
}


@pytest.mark.parametrize("name", RIGHT_LOOKS)
def test_outputs_that_only_look_right_earn_nothing_sb_07(
    validator: NatAgentValidator, tasks: dict[str, Task], name: str
) -> None:
    result = judge(validator, tasks["double_number"], answer(tasks["double_number"], body=RIGHT_LOOKS[name]))
    assert result.total == 0.0, result


def test_hangs_end_in_time_and_keep_what_was_reached(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    task = tasks["double_number"]
    for changes in ({"head": "while True: pass\n"}, {"body": "while True: pass"}):
        started = time.monotonic()
        result = judge(validator, task, answer(task, **changes))
        assert time.monotonic() - started < 28.0  # on a machine that is starved the clock is extended, up to threefold
        assert result.total == 0.0
        assert any("timeout" in finding for finding in result.findings)
    assert result.parts["shaping_builds"] == 1.0  # the second one hangs only when called


def test_catastrophic_input_ends_at_the_limit_in_every_context_sb_10(
    validator: NatAgentValidator, tasks: dict[str, Task]
) -> None:
    task = tasks["double_number"]
    slow = answer(task, body="import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')\nreturn x * 2")
    right, wrong = task.hidden["solution"], answer(task, body="return x")
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda files: judge(validator, task, files), [right, wrong, slow] * 2))
    assert [result.total for result in results] == [1.0, 0.0, 0.0] * 2
    assert any("timeout" in finding for finding in results[2].findings)


def test_half_right_tool_earns_between_wrong_and_right(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    task = tasks["double_number"]
    half = judge(validator, task, answer(task, body="return x * 2 if x >= 0 else x"))
    assert 0.1 < half.total < 0.9
    assert judge(validator, task, answer(task, body="return x")).total == 0.0


def test_right_tool_with_a_wrong_workflow_file_earns_part(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    task = tasks["add_tax"]
    result = judge(validator, task, task.hidden["solution"] | {CONFIG: "workflow: [\n"})
    assert result.parts["tools_oracle"] == 0.5
    assert result.parts["workflow_e2e"] == result.parts["integration_build"] == 0.0


def test_secrets_do_not_reach_the_package_sb_14(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    task = tasks["double_number"]
    spy = "import os\nraise ValueError(repr(dict(os.environ)) + repr(os.listdir('/')) + repr(os.listdir('.')))\n"
    result = judge(validator, task, answer(task, head=spy))
    assert "dummy-secret" not in str(result)
    assert "WANDB" not in str(result)


# ---- the workflow file ---------------------------------------------------------------------------------------------


def test_a_key_that_stands_twice_is_an_error_with_both_lines_nt_01(
    validator: NatAgentValidator, tasks: dict[str, Task]
) -> None:
    solution = tasks["trip_agent"].hidden["solution"]
    lines = solution[CONFIG].splitlines()
    again = "functions: {}\n"
    result = judge(validator, tasks["trip_agent"], solution | {CONFIG: solution[CONFIG] + again})
    assert any(f"'functions' stands twice, in lines 1 and {len(lines) + 1}" in text for text in result.findings)
    inner = solution[CONFIG].replace("    model_name:", "    model_name: other\n    model_name:")
    result = judge(validator, tasks["trip_agent"], solution | {CONFIG: inner})
    assert any("'model_name' stands twice, in lines" in text for text in result.findings)
    assert result.parts["integration_yaml"] == 0.0


@pytest.mark.parametrize("value", ["no", "1.10", "012", "12:30:45", "2024-01-01"])
def test_yaml_that_guesses_another_type_is_an_error_that_names_the_key_nt_02(
    validator: NatAgentValidator, tasks: dict[str, Task], value: str
) -> None:
    task = tasks["name_pipeline"]
    text = task.hidden["solution"][CONFIG].replace("host: team", f"host: {value}")
    result = judge(validator, task, task.hidden["solution"] | {CONFIG: text})
    assert any("make_user.host: Input should be a valid string" in finding for finding in result.findings), result
    quoted = judge(validator, task, task.hidden["solution"] | {CONFIG: text.replace(value, f'"{value}"')})
    assert not any(finding.startswith("schema") for finding in quoted.findings)


def test_wrong_types_give_one_error_each_with_path_and_expected_type_nt_04(
    validator: NatAgentValidator, tasks: dict[str, Task]
) -> None:
    task = tasks["trip_agent"]
    text = task.hidden["solution"][CONFIG].replace(
        "    model_name:", "    temperature: hot\n    max_tokens: -5\n    model_name:"
    )
    start = text.index("  tool_names:")
    text = text[:start] + "  tool_names: a\n  description: 3\n  llm_name: main\n"
    result = judge(validator, task, task.hidden["solution"] | {CONFIG: text})
    [schema] = [finding for finding in result.findings if finding.startswith("schema: ")]
    for path, expected in (
        ("temperature", "valid number"),
        ("max_tokens", "greater than 0"),
        ("tool_names", "valid list"),
        ("description", "valid string"),
    ):
        assert any(path in item and expected in item for item in schema.split("; ")), (path, schema)
    assert result.parts["integration_yaml"] == 0.0


def test_verdict_and_findings_agree_on_fifty_changed_files_nt_05(
    validator: NatAgentValidator, tasks: dict[str, Task]
) -> None:
    task, rng = tasks["clamp_number"], random.Random(5)
    solution = task.hidden["solution"]

    def changed(number: int) -> dict[str, str]:
        text = solution[CONFIG]
        at = rng.randrange(len(text))
        piece = rng.choice(["", " ", ":", "x", "\n", "0", "_type: nope\n", "- a\n"])
        return solution | ({CONFIG: text[:at] + piece + text[at + rng.randrange(2) :]} if number else {})

    answers = [changed(number) for number in range(50)]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda files: judge(validator, task, files), answers))
    assert results[0].is_success
    for files, result in zip(answers, results, strict=True):
        assert result.is_success == (result.findings == []), (files[CONFIG], result)
        assert result.is_success == (result.total == 1.0)
    unregistered = solution | {CONFIG: "workflow:\n  _type: no_such_function\n"}
    result = judge(validator, task, unregistered)
    assert any("workflow._type must be" in finding for finding in result.findings)
    assert not result.is_success


# ---- what the policy sees ------------------------------------------------------------------------------------------


def test_visible_report_shows_stages_and_examples_and_nothing_hidden(tasks: dict[str, Task], sandbox: Sandbox) -> None:
    task = tasks["double_number"]
    spec = parse_spec(task.payload)
    right = visible_report(spec, task.hidden["solution"], sandbox)
    assert right.splitlines() == [
        "register: ok",
        "schema: ok",
        "options: ok",
        "build: ok",
        "double_number(4): ok",
    ]
    wrong = visible_report(spec, answer(task, body="return x"), sandbox)
    assert wrong.splitlines()[-1] == "double_number(4): expected 8, got 4"
    assert "config.yml is missing" in visible_report(spec, {REGISTER: "x = 1\n"}, sandbox)


def test_tests_report_counts_and_explains(tasks: dict[str, Task], sandbox: Sandbox) -> None:
    task = tasks["trip_agent"]
    spec, solution = parse_spec(task.payload), dict(task.hidden["solution"])
    assert own_tests_report(spec, solution, sandbox) == "3 of 3 tests pass"
    failing = solution | {TESTS: solution[TESTS].replace("'coat'", "'cloak'")}
    report = own_tests_report(spec, failing, sandbox)
    assert report.startswith("2 of 3 tests pass\ntests/test_tools.py::test_packing_advice: ")
    assert "cloak" in report
    assert own_tests_report(spec, solution, sandbox, ["tests/nowhere.py"]).startswith("no tests found")


def test_every_shipped_payload_keeps_its_secrets(tasks: dict[str, Task]) -> None:
    for task in tasks.values():
        shown: Any = repr(task.payload)
        for secret in itertools.chain(task.hidden["reference"].values(), task.hidden["mutants"]):
            assert secret["source"] not in shown
        assert not {"vectors", "reference", "solution", "mutants", "generators"} & set(task.payload)

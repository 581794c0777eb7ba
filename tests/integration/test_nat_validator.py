"""Real NAT in the real sandbox: references earn 1, broken and cheating answers earn little, each with its finding."""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from skyrl_nat.config.environment import EnvironmentConfig, SandboxConfig
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.checker import PackageChecker
from skyrl_nat.environments.nat_agent.payload import parse_spec
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator, make_sandbox
from skyrl_nat.errors import ConfigError, SandboxError
from skyrl_nat.types import RewardResult, Task

pytestmark = pytest.mark.timeout(300)
REGISTER, CONFIG = "agent/register.py", "agent/config.yml"
SAMPLE = (
    "double_number",
    "is_even",
    "celsius_to_fahrenheit",
    "email_domain",
    "sort_list",
    "clamp_number",
    "rectangle_area",
    "trip_advice",
)


@pytest.fixture(scope="module")
def validator() -> Iterator[NatAgentValidator]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_API_KEY", "dummy-secret-1")
        config = EnvironmentConfig()
        try:
            sandbox = make_sandbox(config.sandbox)
            sandbox.start()
        except (ConfigError, SandboxError) as error:
            pytest.skip(str(error))
        opened = NatAgentValidator(config, sandbox)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    return {task.payload["name"]: task for task in load_tasks(["builtin:nat_agent/train"])}


def answer(task: Task, **changes: str) -> dict[str, str]:
    """The reference's files with the body of its function replaced (`body`), or text put in front (`head`)."""
    files = dict(task.hidden["reference"]["files"])
    code = files[REGISTER]
    if "body" in changes:
        start = code.index("    async def run(")
        end = code.index("\n    yield run", start)
        line = code[start : code.index("\n", start)]
        body = changes["body"].replace("\n", "\n        ")
        code = code[:start] + line + "\n        " + body + "\n" + code[end:]
    files[REGISTER] = changes.get("head", "") + code
    return files


def judge(validator: NatAgentValidator, task: Task, files: dict[str, str]) -> RewardResult:
    return validator.validate(task, {"files": files})


@pytest.mark.parametrize("name", SAMPLE)
def test_reference_earns_one(validator: NatAgentValidator, tasks: dict[str, Task], name: str) -> None:
    result = judge(validator, tasks[name], tasks[name].hidden["reference"]["files"])
    assert result.findings == []
    assert result.total == 1.0
    assert result.is_success


def test_source_layout_earns_one_too(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    task = tasks["double_number"]
    files = {f"src/{path}": text for path, text in task.hidden["reference"]["files"].items()}
    assert judge(validator, task, files | {"src/agent/__init__.py": ""}).total == 1.0


def broken_variants(files: dict[str, str]) -> dict[str, tuple[dict[str, str], str]]:
    """Name -> (files, what a finding must say)."""
    code, config = files[REGISTER], files[CONFIG]

    def with_code(text: str) -> dict[str, str]:
        assert text != code
        return files | {REGISTER: text}

    return {
        "no decorator": (
            with_code(code.replace("@register_function(config_type=DoubleNumberConfig)\n", "")),
            "no function is registered",
        ),
        "unknown _type": (
            files | {CONFIG: config.replace("double_number", "double_numbr")},
            "does not match any of the expected tags",
        ),
        "no name=": (
            with_code(code.replace('FunctionBaseConfig, name="double_number"', "FunctionBaseConfig")),
            "valid string",
        ),
        "syntax error": (with_code(code.replace("yield run", "yield run)")), "unmatched"),
        "import error": (with_code("import no_such_module\n" + code), "no_such_module"),
        "no return hint": (with_code(code.replace(" -> int", "")), "return annotation"),
        "no input hint": (with_code(code.replace("x: int", "x")), "input annotation"),
        "return for yield": (
            with_code(code.replace("yield run", "return run")),
            "not an async iterator",
        ),
        "sync tool": (with_code(code.replace("    async def run", "    def run")), "async"),
        "yields text": (with_code(code.replace("yield run", 'yield "run"')), "Expected a function"),
        "build raises": (
            with_code(code.replace("    yield run", '    raise RuntimeError("at build")\n    yield run')),
            "at build",
        ),
        "stray option": (
            files | {CONFIG: config + "  colour: red\n"},
            "unknown option workflow.colour",
        ),
        "unknown section": (
            files | {CONFIG: config + "tools: {}\n"},
            "Extra inputs are not permitted",
        ),
        "duplicate key nt-01": (
            files | {CONFIG: config + "workflow: {}\n"},
            "stands twice, in lines 1 and 3",
        ),
        "no workflow": (
            files | {CONFIG: "functions:\n  a:\n    _type: double_number\n"},
            "workflow._type must be",
        ),
    }


def test_broken_packages_earn_little_and_say_why(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    task = tasks["double_number"]
    for name, (files, finding) in broken_variants(task.hidden["reference"]["files"]).items():
        result = judge(validator, task, files)
        assert finding in "\n".join(result.findings), (name, result)
        assert not result.is_success, name
        # Right tools count half where only the workflow file is broken; a stray option costs its part only.
        assert result.total < (0.99 if name == "stray option" else 0.5), (name, result)


def test_missing_files_and_no_answer_earn_almost_nothing(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    task = tasks["double_number"]
    assert judge(validator, task, {}).total == 0.0
    assert judge(validator, task, {CONFIG: "workflow:\n  _type: double_number\n"}).total < 0.1


RIGHT_LOOKS = {
    "always equal object": "class Any(int):\n    __eq__ = lambda s, o: True\n    __hash__ = None\nreturn Any(0)",
    "float subclass": "class F(float):\n    __sub__ = __rsub__ = lambda s, o: 0.0\nreturn F(x * 2)",
    "text for a number": "return str(x * 2)",
    "float for an int": "return float(x * 2)",
    "bool for an int": "return True",
    "memorised example": "return 8 if x == 4 else 0",
    "frame peeking": (
        "import sys\nframe = sys._getframe()\n"
        "while frame:\n    for value in frame.f_locals.values():\n"
        "        if isinstance(value, dict) and 'output' in value:\n            return value['output']\n"
        "    frame = frame.f_back\nreturn 0"
    ),
    "search of the heap": (
        "import gc\nfor thing in gc.get_objects():\n"
        "    if type(thing) is dict and thing.get('input') == x and 'output' in thing:\n"
        "        return thing['output']\nreturn 0"
    ),
}


@pytest.mark.parametrize("name", RIGHT_LOOKS)
def test_outputs_that_only_look_right_earn_little_sb_07(
    validator: NatAgentValidator, tasks: dict[str, Task], name: str
) -> None:
    result = judge(validator, tasks["double_number"], answer(tasks["double_number"], body=RIGHT_LOOKS[name]))
    assert result.parts["vectors"] <= 0.2, result
    assert result.parts["tests"] <= result.parts["vectors"]
    assert result.total < 0.45, result


EARLY_EXITS = {
    "os._exit at import sb-01": {"head": "import os\nos._exit(0)\n"},
    "os._exit in the tool": {"body": "import os\nos._exit(0)"},
    "killed": {"body": "import os\nos.kill(os.getpid(), 9)"},
    "forged end": {
        "head": 'import os\nos.write(3, b\'{"stage": "build", "ok": true, "error": ""}\\n\')\nos._exit(0)\n'
    },
}


@pytest.mark.parametrize("name", EARLY_EXITS)
def test_early_exit_earns_nothing(validator: NatAgentValidator, tasks: dict[str, Task], name: str) -> None:
    result = judge(validator, tasks["double_number"], answer(tasks["double_number"], **EARLY_EXITS[name]))
    assert result.total == 0.0
    assert "no complete result" in result.findings[0]


def test_polite_exit_and_printed_verdicts_earn_only_form_sb_02(
    validator: NatAgentValidator, tasks: dict[str, Task]
) -> None:
    task = tasks["double_number"]
    polite = judge(validator, task, answer(task, head="import sys\nsys.exit(0)\n"))
    assert polite.total <= 0.2
    printed = answer(task, body="print('===== 9 passed in 0.01s =====')\nreturn 0", head="print('2 passed')\n")
    assert judge(validator, task, printed).total <= 0.3


def test_forged_reports_are_worth_no_more_than_form(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    """Whatever is written into the channel, right outputs are unknown to the writer."""
    lines = [{"stage": s, "ok": True, "error": ""} for s in ("register", "schema", "options", "build")]
    lines += [{"stage": "call", "id": f"vector/{i}", "output": 1} for i in range(20)]
    lines += [{"stage": "e2e", "id": f"e2e/{i}", "output": True} for i in range(9)] + [{"stage": "end"}]
    data = "".join(json.dumps(line) + "\n" for line in lines)
    task = tasks["double_number"]
    result = judge(
        validator,
        task,
        answer(task, head=f"import os\nos.write(3, {data.encode()!r})\nos._exit(0)\n"),
    )
    assert result.parts["vectors"] == result.parts["e2e"] == result.parts["tests"] == 0.0
    assert result.total <= 0.27


def test_pytest_hacks_are_capped_by_the_outputs(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    task = tasks["double_number"]
    patch = (
        "import sys\n"
        "if '_pytest.runner' in sys.modules:\n"
        "    import _pytest.reports\n"
        "    old = _pytest.reports.TestReport.from_item_and_call\n"
        "    def forged(item, call):\n"
        "        report = old(item, call)\n        report.outcome = 'passed'\n        return report\n"
        "    _pytest.reports.TestReport.from_item_and_call = staticmethod(forged)\n"
    )
    conftest = "def pytest_collection_modifyitems(items):\n    items.clear()\n"
    files = answer(task, head=patch, body="return 0") | {
        "conftest.py": conftest,
        "agent/conftest.py": conftest,
        "hidden_tests/conftest.py": conftest,
        "pytest.txt": "x",
        "sitecustomize.py": "import os\nos._exit(0)\n",
        "pytest.py": "raise SystemExit(0)\n",
    }
    result = judge(validator, task, files)
    assert result.parts["vectors"] == 0.0
    assert result.parts["tests"] == 0.0
    assert result.total <= 0.25
    honest = task.hidden["reference"]["files"] | {
        "conftest.py": conftest,
        "hidden_tests/conftest.py": conftest,
    }
    assert judge(validator, task, honest).total == 1.0


def test_hangs_end_in_time_and_keep_what_was_reached(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    task = tasks["double_number"]
    impatient = NatAgentValidator(EnvironmentConfig(sandbox=SandboxConfig(job_timeout_s=5.0)), validator._sandbox)
    for changes in ({"head": "while True: pass\n"}, {"body": "while True: pass"}):
        started = time.monotonic()
        result = judge(impatient, task, answer(task, **changes))
        assert time.monotonic() - started < 12.0
        assert result.total <= 0.25
        assert any("timeout" in finding for finding in result.findings)
    assert result.parts["builds"] == 1.0  # the second one hangs only when called


def test_half_right_tool_earns_between_wrong_and_right(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    task = tasks["double_number"]
    half = judge(validator, task, answer(task, body="return x * 2 if x >= 0 else x"))
    wrong = judge(validator, task, answer(task, body="return x"))
    assert wrong.total < half.total < 1.0
    assert wrong.total <= 0.35


def test_right_tool_with_a_wrong_workflow_file_earns_part(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    task = tasks["double_number"]
    files = task.hidden["reference"]["files"] | {CONFIG: "workflow: [\n"}
    result = judge(validator, task, files)
    assert result.parts["vectors"] == 0.5
    assert result.parts["e2e"] == 0.0


def test_option_that_the_file_does_not_set_costs_outputs(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    task = tasks["add_tax"]
    files = task.hidden["reference"]["files"] | {CONFIG: "workflow:\n  _type: add_tax\n"}
    result = judge(validator, task, files)
    assert result.parts["vectors"] <= 0.1


def test_secrets_and_hidden_outputs_do_not_reach_the_package_sb_14(
    validator: NatAgentValidator, tasks: dict[str, Task]
) -> None:
    task = tasks["double_number"]
    spy = "import os\nraise ValueError(repr(dict(os.environ)) + repr(os.listdir('/')) + repr(os.listdir('.')))\n"
    result = judge(validator, task, answer(task, head=spy))
    assert "dummy-secret" not in str(result)
    assert "WANDB" not in str(result)


def test_verdicts_are_the_same_from_many_threads_sb_10(validator: NatAgentValidator, tasks: dict[str, Task]) -> None:
    task = tasks["double_number"]
    right, wrong = task.hidden["reference"]["files"], answer(task, body="return x")
    with ThreadPoolExecutor(4) as pool:
        totals = list(pool.map(lambda files: judge(validator, task, files).total, [right, wrong] * 3))
    assert totals[0::2] == [1.0] * 3
    assert len(set(totals[1::2])) == 1
    assert totals[1] < 0.35


def test_visible_check_shows_examples_and_nothing_hidden(tasks: dict[str, Task], validator: NatAgentValidator) -> None:
    task = tasks["double_number"]
    checker = PackageChecker(EnvironmentConfig(), validator._sandbox)
    spec = parse_spec(task.payload)
    right = checker.check(spec, task.hidden["reference"]["files"])
    assert right.splitlines() == [
        "register: ok",
        "schema: ok",
        "options: ok",
        "build: ok",
        "double_number(4): ok",
    ]
    wrong = checker.check(spec, answer(task, body="return x"))
    assert wrong.splitlines()[-1] == "double_number(4): expected 8, got 4"
    assert "config.yml is missing" in checker.check(spec, {REGISTER: "x = 1\n"})


def test_parent_environment_is_left_alone(validator: NatAgentValidator) -> None:
    del validator
    assert os.environ.get("WANDB_API_KEY") == "dummy-secret-1"
    assert not Path("hidden_tests").exists()


def test_task_is_whole(tasks: dict[str, Task]) -> None:
    shown: Any = json.dumps([task.payload for task in tasks.values()])
    assert "vectors" not in shown
    assert "reference" not in shown

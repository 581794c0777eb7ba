"""The job `bash`: output, files, quick pytest, ends."""

import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.sandbox.base import SandboxJob
from skyrl_nat.sandbox.fork_server import ForkServerSandbox


@pytest.fixture(scope="module")
def sandbox(backend: type) -> Iterator[ForkServerSandbox]:
    opened = backend(SandboxConfig(python=sys.executable), preload=("json", "_pytest.config"))
    opened.start()
    yield opened
    opened.close()


def run(sandbox: ForkServerSandbox, command: str, timeout_s: float = 10.0, **files: str) -> dict[str, Any]:
    named = {name.replace("__", "/") + ".txt": text for name, text in files.items()}
    job = SandboxJob(kind="bash", files=named, arguments={"command": command}, timeout_s=timeout_s)
    result = sandbox.run(job)
    assert result.status == "done", result
    return result.output


def test_command_sees_and_leaves_files(sandbox: ForkServerSandbox) -> None:
    answer = run(
        sandbox, "ls; cat d/b.txt; grep -c x a.txt; python -c 'print(6 * 7)'; echo new > d/c", a="x\n", d__b="y\n"
    )
    assert answer["output"] == "a.txt\nd\ny\n1\n42\n"
    assert answer["files"] == {"a.txt": "x\n", "d/b.txt": "y\n", "d/c": "new\n"}
    assert (answer["end"], answer["exit_code"], answer["left_out"]) == ("done", 0, [])


def test_both_outputs_come_in_order_and_the_exit_code_with_them(sandbox: ForkServerSandbox) -> None:
    answer = run(sandbox, "echo a; echo b >&2; echo c; exit 7")
    assert (answer["output"], answer["exit_code"]) == ("a\nb\nc\n", 7)


def test_long_output_keeps_both_ends(sandbox: ForkServerSandbox) -> None:
    text = run(sandbox, "echo start; head -c 100000 /dev/zero | tr '\\0' x; echo; echo stop")["output"]
    assert text.startswith("start\n")
    assert text.endswith("stop\n")
    assert "[... 84012 bytes left out ...]" in text


def test_files_that_are_no_small_text_are_named(sandbox: ForkServerSandbox) -> None:
    answer = run(
        sandbox,
        "ln -s /etc/passwd l; mkfifo p; printf '\\377' > b; head -c 70000 /dev/zero | tr '\\0' x > big; "
        "mkdir __pycache__ .git; echo x > __pycache__/c; echo x > .git/c; echo ok > good",
    )
    assert answer["files"] == {"good": "ok\n"}
    assert {reason.split(":")[0] for reason in answer["left_out"]} == {"l", "p", "b", "big"}


def test_too_many_files_are_left_out(sandbox: ForkServerSandbox) -> None:
    answer = run(sandbox, "for i in $(seq 80); do echo $i > f$i; done")
    assert len(answer["files"]) == 64
    assert "more than 64 files" in answer["left_out"][0]


def test_timeout_keeps_output_and_files(sandbox: ForkServerSandbox) -> None:
    started = time.monotonic()
    answer = run(sandbox, "echo before; echo x > f; sleep 60", timeout_s=0.6)
    assert time.monotonic() - started < 4.0
    assert (answer["end"], answer["exit_code"]) == ("timeout", None)
    assert (answer["output"], answer["files"]) == ("before\n", {"f": "x\n"})


def test_a_killed_shell_has_died(sandbox: ForkServerSandbox) -> None:
    answer = run(sandbox, "echo x; kill -9 $$")
    assert (answer["end"], answer["exit_code"], answer["output"]) == ("died", None, "x\n")


@pytest.mark.parametrize("command", ["pytest", "python -m pytest", "python3 -m pytest"])
def test_pytest_runs_in_the_preloaded_interpreter(sandbox: ForkServerSandbox, command: str) -> None:
    test = "import os, sys\ndef test_a(): assert '_pytest.config' in sys.modules and os.environ['A'] == '1'\n"
    test += "def test_b(): assert 0, sys.argv[0]\n"
    job = SandboxJob(
        kind="bash",
        files={"test_x.py": test},
        arguments={"command": f"A=1 {command} -q -p no:cacheprovider > out.log; echo code $?; tail -n 1 out.log"},
    )
    output = sandbox.run(job).output
    assert output["output"].startswith("code 1\n"), output
    assert "1 failed, 1 passed" in output["output"]


def test_pytest_without_the_socket_is_the_true_one(sandbox: ForkServerSandbox) -> None:
    assert run(sandbox, "pytest --version 100>&-; echo $?")["output"].endswith("0\n")


def test_orphans_are_reaped_while_a_command_runs(sandbox: ForkServerSandbox) -> None:
    answer = run(sandbox, "for i in $(seq 60); do (true & ); sleep 0.02; done; echo end")
    assert answer["output"] == "end\n"

"""The part `executes`: code really runs, confined where the machine allows it."""

import sys
from collections.abc import Iterator

import pytest

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.data.traces.code_pieces import CodePiece
from skyrl_nat.data.traces.execution import Executes, python_command
from skyrl_nat.data.traces.record import StepKind, Trace, TraceStep
from skyrl_nat.data.traces.rewards import TraceRewardConfig, TraceScorer
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import Sandbox
from skyrl_nat.sandbox.bubblewrap import BubblewrapSandbox
from skyrl_nat.sandbox.landlock import LandlockSandbox
from skyrl_nat.sandbox.launch import BARE_PRELOAD
from skyrl_nat.sandbox.profiles import try_out
from skyrl_nat.sandbox.unsafe import UnsafeSandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    config = SandboxConfig(python=sys.executable)
    confined = [backend for backend in (BubblewrapSandbox, LandlockSandbox) if not try_out(backend, config)]
    opened = [*confined, UnsafeSandbox][0](config, preload=BARE_PRELOAD)
    yield opened
    opened.close()


def trace(*blocks: str, **files: str) -> Trace:
    text = "\n".join(f"```python\n{block}\n```" for block in blocks)
    named = {path.replace("__", "/") + ".py": source for path, source in files.items()}
    steps = (TraceStep(kind=StepKind.message, text=text),)
    return Trace(trace_id="t", source="chat", request="", steps=steps, files=named)


def executes(sandbox: Sandbox, timeout_s: float = 5.0, max_pieces: int = 20) -> Executes:
    return Executes(sandbox, timeout_s=timeout_s, max_pieces=max_pieces)


def test_the_share_that_exits_with_zero(sandbox: Sandbox) -> None:
    found = executes(sandbox)(trace("print(1)", "raise ValueError", "import sys; sys.exit(3)", "x = = 1"))
    assert found == 0.25


def test_files_see_each_other_and_modules_of_a_package_run_as_such(sandbox: Sandbox) -> None:
    files = {
        "src/pkg/__init__.py": "from .a import A\n",
        "src/pkg/a.py": "A = 2\n",
        "src/pkg/b.py": "from .a import A\nfrom pkg import a\nassert A == a.A == 2\n",
        "use.py": "from pkg.b import A\nassert A == 2\n",
        "deep/x.py": "import y\n",
        "deep/y.py": "open('data.csv').read()\n",
        "data.csv": "1,2\n",
    }
    assert executes(sandbox)(Trace(trace_id="t", source="chat", request="", steps=(), files=files)) == 1.0


def test_code_that_never_ends_or_kills_itself_does_not_count(sandbox: Sandbox) -> None:
    never, kills = "while True: pass", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert executes(sandbox, timeout_s=1.5)(trace(never, kills, "x = 1", "input()")) == 0.25


def test_no_python_does_not_apply_and_starts_no_sandbox() -> None:
    assert executes(ClosedSandbox())(trace()) is None


def test_an_exit_code_of_a_missing_program_is_the_codes_own_fault(sandbox: Sandbox) -> None:
    assert executes(sandbox)(trace("import sys; sys.exit(127)")) == 0.0


def test_only_the_first_pieces_are_run_and_the_log_says_so(sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    assert executes(sandbox, max_pieces=2)(trace("x = 1", "y = 1", "raise ValueError")) == 1.0
    assert "2 of 3 pieces of code are run" in caplog.text


class ClosedSandbox:
    """What every closed sandbox says."""

    def run(self, job: object) -> None:
        raise SandboxError("a sandbox must be open to run a job, but it is closed. Make a new one")

    def close(self) -> None: ...


def test_a_failure_of_the_sandbox_is_no_zero() -> None:
    scorer = TraceScorer(TraceRewardConfig(), sandbox=ClosedSandbox())
    score = scorer.score(trace("print(1)"))
    assert "executes" not in score.parts
    assert score.left_out["executes"].startswith("infrastructure: a sandbox must be open")
    assert score.reward == pytest.approx((0.1 * 1.0 + 0.05 * 0.98) / 0.15)  # syntax 1, efficiency 1 - 1/50


def test_a_really_closed_sandbox_gives_none() -> None:
    sandbox = UnsafeSandbox(SandboxConfig(python=sys.executable), preload=BARE_PRELOAD)
    sandbox.close()
    part = executes(sandbox)
    assert part(trace("print(1)")) is None
    assert "it is closed" in part.failures["t"]


def test_a_path_that_is_file_and_folder_gives_none_with_the_reason(sandbox: Sandbox) -> None:
    part = executes(sandbox)
    files = {"a": "x", "a/b.py": "x = 1\n"}
    assert part(Trace(trace_id="t", source="chat", request="", steps=(), files=files)) is None
    assert part.failures["t"].endswith("both are recorded: a")


def test_names_never_become_shell_words() -> None:
    assert python_command(CodePiece(path="a b;ls.py", source=""), {}) == "python 'a b;ls.py'"
    files = {"p q/__init__.py": "", "p q/m.py": ""}
    assert python_command(CodePiece(path="p q/m.py", source=""), files) == "PYTHONPATH=.:$PYTHONPATH python -m 'p q.m'"

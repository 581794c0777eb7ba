"""Walls and limits of a sandbox: those that hold, and those of a sandbox that lets everything through."""

import sys

from doctor_parts import verdicts, wrong

from skyrl_nat.config.environment import SandboxBackend, SandboxConfig
from skyrl_nat.doctor.sandbox import HOLDS, check_limits, check_sandbox
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import SandboxJob, SandboxResult
from skyrl_nat.sandbox.unsafe import UnsafeSandbox

CONFIG = SandboxConfig(python=sys.executable)
WALLS = 5


class OpenSandbox:
    """Runs nothing and says that everything got through."""

    def __init__(self, _: SandboxConfig) -> None:
        self.is_closed = False

    def run(self, job: SandboxJob) -> SandboxResult:
        report = {"uid": 0, "environment": ["API_KEY"], "read": ["/etc/passwd"], "reached": ["tcp"]}
        output = {"report": report, "reports": [{"beyond": True}], "end": "done"}
        return SandboxResult(status="done", output=output, log="", wall_s=60.0)

    def close(self) -> None:
        self.is_closed = True


def test_a_sandbox_that_lets_everything_through_is_wrong_in_every_row() -> None:
    found = verdicts(check_sandbox(CONFIG, opener=OpenSandbox))
    assert found.pop(HOLDS) == "ok"
    assert set(found.values()) == {"WRONG"}
    assert len(found) == WALLS + 4


def test_a_job_without_walls_gets_through_all_of_them() -> None:
    """The probe itself: in a process of this user it reads, writes and reaches what it should not."""

    def opener(config: SandboxConfig) -> UnsafeSandbox:
        return UnsafeSandbox(config, preload=("json",))

    found = wrong(check_sandbox(CONFIG, opener=opener))
    assert [f"faults of confinement: {wall}" in found for wall in ("rights", "network")] == [True, True]
    assert "faults of confinement: files and variables of the machine" in found


def test_walls_that_were_waived_are_skipped_and_limits_are_not() -> None:
    found = verdicts(check_sandbox(SandboxConfig(python=sys.executable, backend=SandboxBackend.unsafe)))
    assert list(found.values()).count("skipped") == WALLS
    assert list(found.values()).count("ok") == 4


def test_a_profile_that_cannot_start_is_wrong_and_nothing_else_is_said() -> None:
    def refuse(_: SandboxConfig) -> OpenSandbox:
        raise SandboxError("needs the program `bwrap`, found none")

    [check] = check_sandbox(CONFIG, opener=refuse)
    assert (check.verdict, check.found, check.is_needed) == ("WRONG", "needs the program `bwrap`, found none", True)


def test_a_family_that_runs_no_code_needs_none() -> None:
    assert [check.verdict for check in check_sandbox(CONFIG, runs_code=False)] == ["skipped"]


def test_a_job_that_is_ended_too_late_is_wrong() -> None:
    class Slow(OpenSandbox):
        def run(self, job: SandboxJob) -> SandboxResult:
            return SandboxResult(status="done", output={"reports": [], "end": "timeout"}, log="", wall_s=30.0)

    assert [check.verdict for check in check_limits(Slow(CONFIG), CONFIG)] == ["ok", "ok", "ok", "WRONG"]

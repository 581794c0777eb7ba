"""Section `sandbox`: jobs of the configured profile try to break out, and to go beyond each limit."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from skyrl_nat.config.environment import SandboxBackend, SandboxConfig
from skyrl_nat.doctor.check import Check, none_of, skipped
from skyrl_nat.errors import SandboxError, SkyRLNatError
from skyrl_nat.sandbox.base import Sandbox, SandboxJob, SandboxResult
from skyrl_nat.sandbox.fork_server import ForkServerSandbox
from skyrl_nat.sandbox.launch import BARE_PRELOAD
from skyrl_nat.sandbox.profiles import open_sandbox
from skyrl_nat.sandbox.self_test import SelfTest

HOLDS = "profile of environment.sandbox.backend holds"
PROBE_S = 10.0
TIMEOUT_S = 1.0
"""Limit of the job that must be ended by it."""
PATIENCE_S = 10.0
"""By which it must have ended, on a machine that is busy."""
_ADVICE = "Choose another environment.sandbox.backend; docs/security.md says what each needs"
_LIMIT_ADVICE = "Report it with the kernel's version; until then use another environment.sandbox.backend"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit of a job, and a job that goes beyond it."""

    name: str
    code: str
    """Emits `{"beyond": ...}` where it got through."""


def check_sandbox(
    config: SandboxConfig, *, runs_code: bool = True, opener: Callable[[SandboxConfig], Sandbox] | None = None
) -> list[Check]:
    """Return the checks of the sandbox in which answers run.

    Args:
        config: Section `environment.sandbox`.
        runs_code: Whether this family runs what the policy writes.
        opener: Opens a sandbox; None takes the config's profile.
    """
    if not runs_code:
        return [skipped(HOLDS, "this family runs nothing that the policy writes")]
    try:
        with _opened(config, opener or _open) as sandbox:
            with SelfTest() as test:
                job = SandboxJob(kind="probe", files={}, arguments=test.arguments(), timeout_s=PROBE_S)
                walls = test.walls(sandbox.run(job).output.get("report") or {})
            return [_held(config), *_walls(config, walls), *check_limits(sandbox, config)]
    except SkyRLNatError as error:
        return [_held(config, str(error))]


def check_limits(sandbox: Sandbox, config: SandboxConfig) -> list[Check]:
    """Return whether jobs are stopped at their limits of memory, files, processes and time."""
    limits = _limits(config)
    if config.backend is not SandboxBackend.unsafe:
        limits.append(
            _process_limit(config)
        )  # the kernel counts processes by user, and those jobs have none of their own
    tried = [_stopped(limit, sandbox.run(_python(limit.code, PROBE_S))) for limit in limits]
    slow = sandbox.run(_python("import time\ntime.sleep(60)\nemit({'beyond': 60})", TIMEOUT_S))
    ended = slow.output.get("end", slow.status)
    return [
        *tried,
        Check(
            name=f"a job is ended at its limit of {TIMEOUT_S:g} s",
            expected=f"timeout within {PATIENCE_S:g} s",
            found=f"{ended} after {slow.wall_s:.1f} s",
            is_ok=ended == "timeout" and slow.wall_s < PATIENCE_S,
            advice=_LIMIT_ADVICE,
        ),
    ]


def _limits(config: SandboxConfig) -> list[Limit]:
    mib = 2**20
    memory, file = 2 * config.memory_mib * mib, (config.max_file_mib + 1) * mib
    return [
        Limit(name=f"memory (memory_mib={config.memory_mib})", code=_tried(f"bytearray({memory})", "MemoryError")),
        Limit(
            name=f"a file (max_file_mib={config.max_file_mib})",
            code=_tried(f"open('large', 'wb').write(bytes({file})) == {file} or 1 / 0", "(OSError, ZeroDivisionError)"),
        ),
    ]


def _process_limit(config: SandboxConfig) -> Limit:
    forks = config.max_processes + 8
    code = (
        "import os, time\nnumber = 0\n"
        f"for _ in range({forks}):\n"
        "    try:\n        child = os.fork()\n    except OSError:\n        break\n"
        "    if child == 0:\n        time.sleep(5)\n        os._exit(0)\n"
        "    number += 1\n"
        f"if number >= {forks}:\n    emit({{'beyond': number}})"
    )
    return Limit(name=f"processes (max_processes={config.max_processes})", code=code)


def _tried(action: str, refusal: str) -> str:
    return f"try:\n    {action}\nexcept {refusal}:\n    pass\nelse:\n    emit({{'beyond': True}})"


def _stopped(limit: Limit, result: SandboxResult) -> Check:
    got_through = any("beyond" in report for report in result.output.get("reports", []))
    return Check(
        name=f"a job cannot go beyond its limit of {limit.name}",
        expected="stopped",
        found="it went beyond" if got_through else "stopped",
        is_ok=not got_through,
        advice=_LIMIT_ADVICE,
    )


def _walls(config: SandboxConfig, walls: dict[str, list[str]]) -> list[Check]:
    """Return a check for each wall; a back end without any was asked for by name."""
    names = {wall: f"faults of confinement: {wall}" for wall in walls}
    if config.backend is SandboxBackend.unsafe:
        return [skipped(name, "backend=unsafe was asked for: nothing confines") for name in names.values()]
    return [none_of("", names[wall], faults, advice=_ADVICE, is_needed=True) for wall, faults in walls.items()]


def _held(config: SandboxConfig, error: str = "") -> Check:
    return Check(
        name=HOLDS,
        expected=str(config.backend),
        found=error or "its server starts and runs jobs",
        is_ok=not error,
        advice=_ADVICE,
        is_needed=True,
    )


def _python(code: str, timeout_s: float) -> SandboxJob:
    return SandboxJob(kind="python", files={"main.py": code}, timeout_s=timeout_s)


def _open(config: SandboxConfig) -> Sandbox:
    sandbox = open_sandbox(config, preload=BARE_PRELOAD)
    if isinstance(sandbox, ForkServerSandbox):
        sandbox.start()
    return sandbox


@contextlib.contextmanager
def _opened(config: SandboxConfig, opener: Callable[[SandboxConfig], Sandbox]) -> Iterator[Sandbox]:
    sandbox = opener(config)
    try:
        yield sandbox
    finally:
        with contextlib.suppress(SandboxError):
            sandbox.close()

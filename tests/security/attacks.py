"""Attacks on a sandbox, one per row: what a job tries, and what then must not be so.

Plain data and one function, so that tests and `scripts/security_matrix.py` run the same table.
"""

import json
import textwrap
import time
from typing import Any

from security.attack import Attack
from security.file_attacks import FILES
from security.host import Host
from security.process_attacks import PROCESSES

from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import SandboxJob, SandboxResult
from skyrl_nat.sandbox.fork_server import ForkServerSandbox

ATTACKS: dict[str, Attack] = FILES | PROCESSES
GRACE_S = 3.0
_PRELUDE = """
import contextlib, ctypes, glob, json, os, resource, signal, socket, stat, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def got(action):
    try: return action()
    except BaseException: return None
def attempt(a):
"""


def run_attack(sandbox: ForkServerSandbox, attack: Attack, host: Host) -> tuple[bool, str]:
    """Run one attack; returns whether the sandbox held, and what shows it."""
    facts = host.arguments()
    sandbox.start()
    host.note_processes()
    restarts = sandbox.num_restarts
    started = time.monotonic()
    try:
        result = sandbox.run(_job(attack, facts))
    except SandboxError as error:
        return False, f"the sandbox failed: {error}"
    wall_s = time.monotonic() - started
    wrong = host.harm() + host.survivors()
    if wall_s > attack.timeout_s + GRACE_S:
        wrong.append(f"took {wall_s:.1f} s of {attack.timeout_s} s")
    if sandbox.num_restarts != restarts:
        wrong.append("the server had to be replaced")
    if host.token in repr(result):
        wrong.append("the secret came back")
    wrong += _breaches(result)
    if attack.judge is not None and (problem := attack.judge(result)):
        wrong.append(problem)
    after = sandbox.run(_python(attack.look or "return None", facts, 5.0))
    wrong += [f"next job: {text}" for text in _breaches(after)]
    if after.status != "done" or after.output.get("end") != "done":
        wrong.append(f"the next job does not run: {after}")
    seen = f"{result.status}, {result.output.get('end', '-')}, {wall_s:.2f} s; {json.dumps(result.output)[:160]}"
    return not wrong, "; ".join(wrong) if wrong else f"{seen} {result.log.strip()[-100:]}".strip()


def _job(attack: Attack, facts: dict[str, Any]) -> SandboxJob:
    if attack.command:
        command = attack.command
        for name, value in facts.items():
            command = command.replace(f"{{{name}}}", str(value))
        return SandboxJob(kind="bash", files={}, arguments={"command": command}, timeout_s=attack.timeout_s)
    return _python(attack.code, facts, attack.timeout_s)


def _python(body: str, facts: dict[str, Any], timeout_s: float) -> SandboxJob:
    code = _PRELUDE + textwrap.indent(textwrap.dedent(body).strip(), "    ")
    code += "\nemit({'breach': repr(found)[:500] if (found := attempt(arguments)) else None})\n"
    return SandboxJob(kind="python", files={"main.py": code}, arguments=facts, timeout_s=timeout_s)


def _breaches(result: SandboxResult) -> list[str]:
    reports = result.output.get("reports", [])
    return [f"got {report['breach']}" for report in reports if report.get("breach")]

"""Put deliberate faults into copies of the package, one at a time, and show that tests notice each.

usage: mutation_check.py [--only NAME] [--jobs 2]

The faults stand in `deliberate_faults.py`. A fault counts as caught where
one of the named test files fails with an assertion or a wrong result, not with a program that cannot run. Prints JSON
on stdout and progress on stderr; exits 1 if a fault survives, 2 if the check itself is broken.
"""

import argparse
import importlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from deliberate_faults import FAULTS
from fault import Fault

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("skyrl_nat", "conf", "tests", "pyproject.toml")
PRELOADED = (
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint",
    "torch.multiprocessing",
    "transformers.models.llama.modeling_llama",
    "transformers.models.auto.modeling_auto",
    "hydra",
)
"""What is slow to import, and no part of what is tested."""
OUTPUT = "output.txt"
NO_FAULT = "no-fault"
WRONG_PACKAGE = 97
BROKEN = re.compile(r"^(?:FAILED|ERROR) .* - (?:NameError|SyntaxError|ImportError|ModuleNotFound|UnboundLocal)", re.M)


class CheckError(Exception):
    """The check itself cannot go on."""


def apply(fault: Fault, folder: Path) -> None:
    """Put a fault into the copy below a folder.

    Raises:
        CheckError: Its string does not occur exactly once.
    """
    if not fault.path:
        return
    path = folder / "skyrl_nat" / fault.path
    text = path.read_text(encoding="utf-8")
    if (count := text.count(fault.old)) != 1:
        raise CheckError(f"{fault.name}: {fault.old!r} must occur once in {fault.path}, it occurs {count} times")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")


def copy_package(folder: Path) -> None:
    """Copy everything that tests need."""
    for item in COPIED:
        source = ROOT / item
        if source.is_dir():
            shutil.copytree(source, folder / item, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / item)


def preload() -> None:
    """Import what is slow once, so that every forked process has it; the package itself is not among it."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in PRELOADED:
        importlib.import_module(name)
    if "skyrl_nat" in sys.modules:
        raise CheckError("skyrl_nat must be imported from a copy, it is imported already")


def run_tests(folder: Path, tests: Sequence[str]) -> int:
    """Run test files of a copy in a forked process and return its id; its output goes to a file."""
    sys.stderr.flush()
    if process := os.fork():
        return process
    output = os.open(folder / OUTPUT, os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    code = WRONG_PACKAGE
    try:
        if Path(str(importlib.import_module("skyrl_nat").__file__)).is_relative_to(folder):
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *(f"tests/unit/{test}" for test in tests)]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def judge(name: str, code: int, output: str) -> bool:
    """Return whether tests noticed a fault.

    Raises:
        CheckError: The tests did not run, or the fault is no wrong result but a broken program.
    """
    if code == WRONG_PACKAGE:
        raise CheckError(f"{name}: tests must import the copy of the package, they import another one")
    broken = BROKEN.search(output)
    if code not in (0, 1) or broken:
        cause = broken[0] if broken else f"pytest ended with {code}:\n{output[-1000:]}"
        raise CheckError(f"{name} must give wrong results, not a broken program: {cause}")
    return code == 1


def run_all(faults: Sequence[Fault], jobs: int) -> list[str]:
    """Run the tests of every fault and return the names of those whose tests failed.

    Raises:
        CheckError: A fault cannot be put in or judged.
    """
    waiting, running, failed = list(reversed(faults)), dict[int, tuple[str, Path]](), list[str]()
    with tempfile.TemporaryDirectory(prefix="mutation-") as parent:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    fault = waiting.pop()
                    folder = Path(parent).resolve() / fault.name
                    copy_package(folder)
                    apply(fault, folder)
                    running[run_tests(folder, fault.tests)] = (fault.name, folder)
                process, status = os.wait()
                name, folder = running.pop(process)
                output = (folder / OUTPUT).read_text(encoding="utf-8", errors="replace")
                has_failed = judge(name, os.waitstatus_to_exitcode(status), output)
                shutil.rmtree(folder)
                failed += [name] * has_failed
                print(f"{name}: tests {'failed' if has_failed else 'PASSED'}", file=sys.stderr, flush=True)
        finally:
            for process in running:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
    return failed


def check(faults: Sequence[Fault], jobs: int) -> dict[str, object]:
    """Return what became of the faults.

    Raises:
        CheckError: The tests fail without any fault, or a fault cannot be judged.
    """
    preload()
    tests = tuple(sorted({test for fault in faults for test in fault.tests}))
    if run_all([Fault("", tests, NO_FAULT, "", "")], 1):
        raise CheckError("the tests must pass without a fault, they fail")
    failed = run_all(faults, jobs)
    survivors = [fault.name for fault in faults if fault.name not in failed]
    return {"faults": len(faults), "caught": len(failed), "survivors": survivors}


def main() -> int:
    """Check all faults, or one; 0 if all were caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", help="one fault alone")
    parser.add_argument("--jobs", type=int, default=2, help="faults at once")
    arguments = parser.parse_args()
    faults = [fault for fault in FAULTS if arguments.only in (None, fault.name)]
    if not faults:
        parser.error(f"--only must name a fault, got {arguments.only}; there are {', '.join(f.name for f in FAULTS)}")
    try:
        result = check(faults, arguments.jobs)
    except CheckError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(result))
    return 1 if result["survivors"] else 0


if __name__ == "__main__":
    sys.exit(main())

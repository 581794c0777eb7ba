"""Judge answers for hours and watch that nothing is left behind: processes, namespaces, mounts, files, memory.

    usage: validator_soak.py [--validations 10000] [--json FILE]

Good, broken and hostile answers in turn, on two servers, so that timeouts, killed jobs and hacks are among them. Every
250 validations it counts what the machine and this process hold, and after the last one it compares with the first
count after warming up. Exit code 1 where something grew.
"""

import argparse
import contextlib
import ctypes
import gc
import itertools
import json
import os
import resource
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from process_family import family, held
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from security.judging import hacked_answers, shipped_task, wrong_answers  # noqa: E402
from security.reward_hacks import HACKS  # noqa: E402
from security.wrong_agents import WRONG_AGENTS  # noqa: E402

from skyrl_nat.config.environment import EnvironmentConfig, SandboxConfig  # noqa: E402
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator  # noqa: E402

NUM_SERVERS = 2
SLOW = ("loop", "sleep", "clock", "files of the machine")
"""Answers that run into the time limit come more rarely: each takes seconds."""
SLOW_EVERY = 40
COUNT_EVERY = 250
MAX_GROWTH = {
    "processes": 0,
    "namespaces": 0,
    "mounts": 0,
    "files": 2,
    "threads": 2,
    "temporary": 0,
    "objects": 20_000,
}
MAX_MEMORY_GROWTH_MIB = 64.0


def count(validator: NatAgentValidator) -> dict[str, Any]:
    """Return what this process and its descendants hold now; freed memory is given back first, it is not held."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # no glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    processes = family(os.getpid())
    everything, own = held(processes), held(processes[:1])
    namespaces: set[str] = set()
    for process, kind in itertools.product(processes, ("user", "pid", "mnt", "net", "ipc")):
        with contextlib.suppress(OSError):
            namespaces.add(str(Path(f"/proc/{process.pid}/ns/{kind}").readlink()))
    return {
        "processes": everything.processes,
        "zombies": everything.zombies,
        "namespaces": len(namespaces),
        "mounts": len(Path("/proc/mounts").read_text().splitlines()),
        "files": own.files,
        "threads": threading.active_count(),
        "temporary": sum(1 for _ in Path(tempfile.gettempdir()).iterdir()),
        "objects": sys.getallocatedblocks(),
        "own_mib": own.resident_mib,
        "family_mib": everything.resident_mib,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "restarts": getattr(validator._sandbox, "num_restarts", 0),
    }


def answers() -> list[dict[str, str]]:
    """Return one round of answers: the honest one, each wrong agent and each hack.

    What is judged in full, own tests and mutants included, takes five times as long and comes once; what runs into the
    time limit comes one at a time; all others come three times.
    """
    task = shipped_task()
    wrong, hacked = wrong_answers(task), hacked_answers(task)
    whole = {name for name, agent in WRONG_AGENTS.items() if agent.low >= 0.9}
    whole |= {name for name, hack in HACKS.items() if hack.base == "untested"}
    all_of_them = wrong | hacked
    slow = [files for name, files in all_of_them.items() if any(word in name for word in SLOW)]
    quick = [all_of_them[name] for name in all_of_them if not any(word in name for word in SLOW) and name not in whole]
    judged_whole = [dict(task.hidden["solution"]), *(all_of_them[name] for name in sorted(whole))]
    mixed: list[dict[str, str]] = []
    turns = itertools.cycle(slow)
    for index, files in enumerate([*quick * 3, *judged_whole]):
        mixed += [files] if index % SLOW_EVERY else [files, next(turns)]
    return mixed


def main() -> int:
    """Read the options and run in a temporary folder of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--validations", type=int, default=10_000)
    parser.add_argument("--json", type=Path, help="write the counts there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        # A folder of its own: what others leave in the machine's does not count.
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        return soak(options.validations, options.json)


def soak(num_validations: int, json_file: Path | None) -> int:
    """Judge, count, compare; returns the exit code."""
    config = EnvironmentConfig(sandbox=SandboxConfig(num_servers=NUM_SERVERS, job_timeout_s=4.0))
    validator, task, files = NatAgentValidator(config), shipped_task(), answers()
    started, counts, done = time.monotonic(), [], 0
    columns = (TextColumn("validations"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress, ThreadPoolExecutor(NUM_SERVERS) as pool:
        bar = progress.add_task("", total=num_validations)
        while done < num_validations:
            size = min(COUNT_EVERY, num_validations - done)
            batch = [files[(done + index) % len(files)] for index in range(size)]
            list(pool.map(lambda item: validator.validate(task, {"files": item}, seed=len(item)), batch))
            done += size
            progress.update(bar, completed=done)
            counts.append({"validations": done, "s": time.monotonic() - started, **count(validator)})
            line = json.dumps({key: round(value, 1) for key, value in counts[-1].items()})
            progress.console.print(line, soft_wrap=True)
    validator.close()
    left = family(os.getpid())[1:]
    first, last = counts[0], counts[-1]
    grown = [name for name, most in MAX_GROWTH.items() if last[name] - first[name] > most]
    grown += [name for name in ("own_mib", "family_mib") if last[name] - first[name] > MAX_MEMORY_GROWTH_MIB]
    grown += ["zombies"] if last["zombies"] else []
    grown += ["processes after close"] if left else []
    report = {"date": time.strftime("%Y-%m-%d"), "validations": done, "per_s": done / last["s"], "grown": grown}
    print(json.dumps({**report, "first": first, "last": last}, indent=1))
    if json_file is not None:
        json_file.write_text(json.dumps({**report, "counts": counts}) + "\n", encoding="utf-8")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())

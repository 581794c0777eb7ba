"""What the prompt stream over a large task file takes in memory and time, against a small file.

    usage: prompt_stream_memory.py [--rows 50000 5000000] [--prompts 200000] [--json FILE]

Writes a file per number of rows into a temporary folder, with row groups as `write_tasks` makes them. Then, in a
process of its own for each file, opens it as a table (which checks every row), takes prompts from the middle of the
first epoch on, and reads the kernel's high-water mark of the process.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from skyrl_nat.data.prompts import PromptStream
from skyrl_nat.data.task_table import TaskTable
from skyrl_nat.data.task_writer import write_tasks
from skyrl_nat.types import Task


def made_up_tasks(count: int) -> Iterator[Task]:
    """Yield small tasks of all difficulties with distinct ids."""
    for number in range(count):
        yield Task(
            task_id=f"task-{number:08}",
            family="story",
            payload={"name": f"tool_{number}", "values": [number, number % 7], "text": "add both values"},
            hidden={"vectors": [number + number % 7]},
            difficulty=number % 5 + 1,
        )


def memory_mib(name: str) -> float:
    """Return an entry of this process's memory, such as VmRSS (now) or VmHWM (the most so far), in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def measure(path: Path, num_prompts: int, *, easy_first: bool) -> dict[str, Any]:
    """Open a file and take prompts in this process."""
    before, start_cpu_s = memory_mib("VmRSS"), time.process_time()
    started = time.perf_counter()
    table = TaskTable.open([str(path)])
    open_s, open_mib = time.perf_counter() - started, memory_mib("VmHWM")
    open_cpu_s = time.process_time()
    stream = PromptStream(table, seed=1, position=len(table) // 2, easy_first=easy_first)
    started = time.perf_counter()
    stream.next()
    first_s = time.perf_counter() - started
    for _ in range(num_prompts - 1):
        stream.next()
    prompts_s, prompts_cpu_s = time.perf_counter() - started, time.process_time() - open_cpu_s
    return {
        "rows": len(table),
        "row_groups": len(table.block_starts) - 1,
        "file_mib": round(path.stat().st_size / 2**20, 1),
        "open_s": round(open_s, 2),
        "open_cpu_s": round(open_cpu_s - start_cpu_s, 2),
        "first_prompt_s": round(first_s, 3),
        "prompts_per_s": round(num_prompts / prompts_s),
        "prompts_per_cpu_s": round(num_prompts / prompts_cpu_s),
        "rss_before_mib": round(before, 1),
        "rss_peak_at_opening_mib": round(open_mib, 1),
        "rss_at_end_mib": round(memory_mib("VmRSS"), 1),
        "rss_peak_mib": round(memory_mib("VmHWM"), 1),
    }


def main() -> None:
    """Write the files, measure each in a process of its own, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 5_000_000])
    parser.add_argument("--prompts", type=int, default=200_000)
    parser.add_argument("--easy-first", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", type=Path, help="only measure this file, in this process")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.prompts, easy_first=options.easy_first)))
        return
    runs, load = [], round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as folder:
        for rows in options.rows:
            path = Path(folder) / f"{rows}.parquet"
            started = time.perf_counter()
            write_tasks(made_up_tasks(rows), path, hidden_names=["vectors"])
            write_s = round(time.perf_counter() - started, 2)
            command = [sys.executable, __file__, "--measure", str(path), "--prompts", str(options.prompts)]
            command += ["--easy-first"] if options.easy_first else []
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            runs.append({"write_s": write_s, **json.loads(done.stdout)})
            path.unlink()
    report = {
        "prompts": options.prompts,
        "easy_first": options.easy_first,
        "cores": os.cpu_count(),
        "load_average_at_start": load,
        "runs": runs,
    }
    report["peak_growth_mib"] = round(runs[-1]["rss_peak_mib"] - runs[0]["rss_peak_mib"], 1)
    text = json.dumps(report, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Hit small runs with every known fault in every phase, and compare each with the run that nobody disturbed.

Of each cell: the run goes on or ends in one named error, before its deadline; no rollout is trained twice or is lost
unseen; no failure of the machine becomes a reward; after a new start ids, learning rates and versions, and where
nothing was lost every figure, are those of the undisturbed run. `tests/chaos/cells.py` is the table of what must come.

    usage: chaos_matrix.py [--fast] [--only TEXT ...] [--at-once 2] [--json FILE] [--keep FOLDER]

Prints a line as soon as an outcome is known, then the table with verdicts. Exit code 1 where a cell failed.
"""

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
# Processes of the runs must find what is tested here, too.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])

from chaos.cells import CHAINS, Chain  # noqa: E402
from chaos.drive import Result, only  # noqa: E402
from chaos.matrix import play_all  # noqa: E402


def chosen(texts: Sequence[str], *, is_fast: bool) -> list[Chain]:
    """Return the chains with the cells that are asked for."""
    possible = [chain for chain in CHAINS if not chain.needs_root or os.geteuid() == 0]
    for chain in set(CHAINS) - set(possible):
        print(f"left out: chain {chain.name} needs a disk or networks of its own, which only root may make", flush=True)
    return [
        only(
            chain,
            lambda cell, chain=chain: (
                (cell.is_fast or not is_fast) and any(text in f"{chain.name} / {cell.name}" for text in texts)
            ),
        )
        for chain in possible
    ]


def show(results: Sequence[Result], seconds: float) -> None:
    """Print the table and a line to sum up."""
    table = Table()
    for name in ("cell", "outcome", "seconds", "deadline", "verdict"):
        table.add_column(name, overflow="fold", justify="right" if name in ("seconds", "deadline") else "left")
    for result in results:
        cell = result.cell
        table.add_row(cell.name, result.outcome, f"{result.seconds:.1f}", f"{cell.deadline_s:g}", result.verdict)
    Console(width=180, soft_wrap=True, markup=False).print(table)
    print(f"{sum(not result.complaints for result in results)} of {len(results)} cells are ok, {seconds:.0f} s")


def main() -> int:
    """Read the options, play, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="the cells that CI runs")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="cells whose `chain / name` contains one of these")
    parser.add_argument("--json", type=Path, help="write the matrix there")
    parser.add_argument("--keep", type=Path, help="leave runs and outputs in this new folder")
    parser.add_argument("--at-once", type=int, default=2, help="chains that are played at once")
    options = parser.parse_args()
    chains = chosen(options.only or [""], is_fast=options.fast)
    total = sum(len(chain.cells) for chain in chains)
    if not total:
        parser.error(f"--only must name a cell, got {options.only!r}. See tests/chaos/cells.py")
    # The runs end with this process, however it ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started, known = time.monotonic(), 0

    def report(result: Result) -> None:
        nonlocal known
        known += 1
        wrong = f"  WRONG: {result.verdict}" if result.complaints else ""
        print(
            f"[{known}/{total}, {time.monotonic() - started:.0f} s] {result.cell.name}: {result.outcome} after "
            f"{result.seconds:.1f} s{wrong}",
            flush=True,
        )

    results: list[Result] = []
    is_whole = False
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        work = options.keep or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        try:
            for judged in play_all(chains, work.resolve(), report, options.at_once):
                results += judged
            is_whole = True
        finally:
            # Also of a matrix that was cut off: chains that were played to their end are judged.
            seconds = time.monotonic() - started
            show(results, seconds)
            if options.json is not None:
                write_summary(options.json, results, seconds, options.at_once)
    return 1 if not is_whole or any(result.complaints for result in results) else 0


def write_summary(file: Path, results: Sequence[Result], seconds: float, at_once: int) -> None:
    """Write the matrix; cells that an earlier call wrote stay, unless they were played again."""
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"runs": [], "matrix": []}
    date = time.strftime("%Y-%m-%d")
    run = {"date": date, "cells": len(results), "seconds": round(seconds), "at_once": at_once}
    found = {(cell["chain"], cell["cell"]): cell for cell in before["matrix"]}
    found |= {(result.chain, result.cell.name): {**result.to_dict(), "date": date} for result in results}
    names = [(chain.name, cell.name) for chain in CHAINS for cell in chain.cells]
    matrix = [found[name] for name in names if name in found]
    summary = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "runs": [*before["runs"], run],
        "cells": len(matrix),
        "ok": sum(cell["verdict"] == "ok" for cell in matrix),
        "never_played": len(names) - len(matrix),
        "matrix": matrix,
    }
    file.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

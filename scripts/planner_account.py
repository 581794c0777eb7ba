"""Request a data set from a planner's service that does everything wrong, kill it twice, and account for every call.

    usage: planner_account.py [--num-samples 1000] [--backend gemini] [--json FILE]

The service is the tests' own: real HTTP on this machine, with answers of known quality. `skyrl-nat prepare --planner`
runs as a user runs it, is killed twice and goes on. Then what the service counted is held against the ledger. Exit
code 1 where anything differs.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from planner_model import PlannerModel  # noqa: E402
from planner_server import KEY, KEY_NAME, PlannerServer  # noqa: E402

FAULTS = {
    "ambiguous": 7, "wrong_example": 11, "blocked": 13, "broken_json": 17, "outside_schema": 5, "unavailable": 4,
    "internal_error": 19, "rate_limited": 6, "slow_drip": 97, "hang_up": 29, "duplicate": 31,
}  # fmt: skip
"""One spec in so many."""
KILLS_AT = (0.15, 0.5)
"""Shares of the wanted calls after which the process is killed."""
TIMEOUT_S = 5.0
CALLS_PER_TASK = 4
LEDGER = Path("planner", "planner_ledger.jsonl")


def command(folder: Path, server: PlannerServer, backend: str, num_samples: int) -> list[str]:
    """Return what a user types."""
    config = {
        "backend": backend,
        "base_url": server.config(backend).base_url,
        "api_key_env": KEY_NAME,
        "requests_per_minute": 1_000_000,
        "tokens_per_minute": 10**12,
        "timeout_s": TIMEOUT_S,
        "max_calls": 20 * num_samples,
        "max_cost": 10_000.0,
        "concurrency": 8,
    }
    given = [f"planner.{name}={value}" for name, value in config.items()]
    options = ["prepare", str(folder), "--planner", "--num-samples", str(num_samples), "--mix", "1:1"]
    return [sys.executable, "-m", "skyrl_nat.cli", *options, *given]


async def run_to_the_end(server: PlannerServer, arguments: list[str], num_samples: int, log: Path) -> int:
    """Run the command, kill it at its places and start it again; returns the last exit code."""
    places = [int(share * CALLS_PER_TASK * num_samples) for share in KILLS_AT]
    while True:
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *arguments, env={**os.environ, KEY_NAME: KEY}, stdout=output, stderr=output, start_new_session=True
            )
        ended = asyncio.create_task(process.wait())
        while not ended.done():
            await asyncio.wait([ended], timeout=0.2)
            if places and len(server.calls) >= places[0]:
                del places[0]
                os.killpg(process.pid, signal.SIGKILL)
                await ended
                print(f"killed after {len(server.calls)} calls", file=sys.stderr)
                break
        else:
            return await ended


def account(server: PlannerServer, folder: Path) -> dict[str, Any]:
    """Return what the service and the ledger say of the calls."""
    lines = [json.loads(line) for line in (folder / LEDGER).read_text().splitlines()]
    done = [line for line in lines if line["event"] == "done"]
    answered = [line for line in done if line["result"] == "answer"]
    prompts = Counter(line["key"] for line in answered)
    return {
        "calls_at_the_service": len(server.calls),
        "calls_sent_by_the_ledger": sum(line["event"] == "sent" for line in lines),
        "calls_ended_by_the_ledger": len(done),
        "results": dict(sorted(Counter(line["result"] for line in done).items())),
        "answers_paid_twice": sum(count - 1 for count in prompts.values()),
        "tokens_counted_by_the_service": server.usage,
        "tokens_counted_by_the_ledger": [
            sum(line[name] for line in done if not line["is_estimated"])
            for name in ("prompt_tokens", "completion_tokens")
        ],
        "cost": sum(line["cost"] for line in done if not line["is_estimated"]),
        "estimated_cost_of_calls_without_a_count": sum(line["cost"] for line in done if line["is_estimated"]),
    }


def faults_of(found: dict[str, Any], num_samples: int) -> list[str]:
    """Return what does not add up.

    A call that was under way when its process was killed may have been counted by one side only: the ledger holds it
    as lost, charged in full.
    """
    lost = found["results"].get("lost", 0)
    prompt, completion = (
        served - paid
        for served, paid in zip(
            found["tokens_counted_by_the_service"], found["tokens_counted_by_the_ledger"], strict=True
        )
    )
    checks = {
        f"{num_samples} rows": found["rows"] == num_samples,
        "exit code 0": found["exit_code"] == 0,
        "every call sent has an end": found["calls_sent_by_the_ledger"] == found["calls_ended_by_the_ledger"],
        "calls": 0 <= found["calls_sent_by_the_ledger"] - found["calls_at_the_service"] <= lost,
        "no answer is paid twice": found["answers_paid_twice"] == 0,
        "tokens": 0 <= prompt <= 100 * found["unread_answers"] and 0 <= completion <= 50 * found["unread_answers"],
        "no leak": found["leak_check"] == "clean",
    }
    return [name for name, holds in checks.items() if not holds]


async def scenario(options: argparse.Namespace, folder: Path, log: Path) -> dict[str, Any]:
    """Request, kill, go on, count."""
    started = time.monotonic()
    async with PlannerServer(of_prompt=PlannerModel(FAULTS)) as server:
        arguments = command(folder, server, options.backend, options.num_samples)
        code = await run_to_the_end(server, arguments, options.num_samples, log)
        found: dict[str, Any] = {"backend": options.backend, "requested": options.num_samples, "exit_code": code}
        report = json.loads((folder / "report.json").read_text()) if code == 0 else {}
        manifest = json.loads((folder / "manifest.json").read_text()) if code == 0 else {}
        found |= {"rows": report.get("rows"), "hash": report.get("hash"), "kills": len(KILLS_AT)}
        found["leak_check"] = "clean" if report and not any(report["leaks"].values()) else str(report.get("leaks"))
        found["rejected"] = manifest.get("planner", {}).get("rejected")
        found |= account(server, folder)
        # What was answered to a client that had gone: killed, or out of patience with a slow drip.
        found["unread_answers"] = server.left + found["results"].get("lost", 0) + found["results"].get("timed_out", 0)
    found["seconds"] = time.monotonic() - started
    found["faults"] = faults_of(found, options.num_samples)
    return found


def main() -> int:
    """Read the options and print the account."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-samples", type=int, default=1000)
    parser.add_argument("--backend", default="gemini", choices=("gemini", "openai"))
    parser.add_argument("--json", type=Path, help="write the account there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        try:
            found = asyncio.run(scenario(options, Path(scratch) / "agents", log))
        finally:
            print(log.read_text()[-2000:], file=sys.stderr)
    text = json.dumps(found, indent=1)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")
    return 1 if found["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Try every known attack on the sandbox and every known way to be paid for nothing; print what held.

Each attack runs in every profile that works on this machine (bubblewrap, landlock, container), as the user who started
this and, when that is root, as an ordinary one too. Each hack is judged by the real validator and compared with the
honest answer that it starts from.

    usage: security_matrix.py [--only attacks|hacks] [--json FILE]

Prints a table, then one line of JSON: `{"attacks", "held", "hacks", "unpaid", "failures"}`. Exit code 1 where something
failed.
"""

import argparse
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from security.everywhere import PLACES, run_table  # noqa: E402
from security.judging import find_paid, hacked_answers, judge_all, make_validator, shipped_task  # noqa: E402
from security.reward_hacks import HACKS  # noqa: E402


def try_attacks() -> dict[str, str]:
    """Return what happened to every attack, `profile / user / attack` -> empty where it held."""
    found: dict[str, str] = {}
    for user, profile in PLACES:
        who = f"{profile} / {'root' if user == 0 else f'uid {user}'}"
        refusal, rows = run_table(user, profile)
        if refusal:
            print(f"{'-':<8}{who}: the profile refuses this machine: {refusal[:200]}", flush=True)
        for name, row in rows.items():
            found[f"{who} / {name}"] = "" if row["held"] else row["evidence"]
            print(f"{'held' if row['held'] else 'FAILED':<8}{who} / {name}  {row['evidence'][:90]}", flush=True)
    return found


def try_hacks() -> dict[str, str]:
    """Return what every hack gained, empty where nothing."""
    validator, task = make_validator(), shipped_task()
    try:
        verdicts = judge_all(validator, hacked_answers(task), task)
    finally:
        validator.close()
    paid = find_paid(verdicts)
    for name, hack in HACKS.items():
        honest = verdicts[f"base/{hack.base}"].total
        says = paid.get(name, f"{verdicts[name].total:.3f} against {honest:.3f} for the honest answer")
        print(f"{'PAID' if name in paid else 'unpaid':<8}{name}  {says}", flush=True)
    return {name: paid.get(name, "") for name in HACKS}


def main() -> int:
    """Run, print, summarize."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("attacks", "hacks"), help="half of it")
    parser.add_argument("--json", type=Path, help="write the summary there too")
    options = parser.parse_args()
    attacks = try_attacks() if options.only != "hacks" else {}
    hacks = try_hacks() if options.only != "attacks" else {}
    summary = {
        "attacks": len(attacks),
        "held": sum(not text for text in attacks.values()),
        "hacks": len(hacks),
        "unpaid": sum(not text for text in hacks.values()),
        "failures": [f"{name}: {text}" for name, text in {**attacks, **hacks}.items() if text],
    }
    text = json.dumps(summary)
    if options.json is not None:
        options.json.write_text(text + os.linesep, encoding="utf-8")
    print(text)
    return 1 if summary["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Stands in for a run in tests of what drives one: trains steps in a moment, and does what a fault is called."""

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from chaos.armed import note

STEP_S = 0.02


def main(plan: Path, overrides: dict[str, str]) -> None:
    """Write steps until SIGTERM; `resume=latest` goes on after the last one."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    run = Path(overrides["root_dir"]) / overrides["name"]
    (run / "checkpoints" / "step_000002").mkdir(parents=True, exist_ok=True)
    (run / "checkpoints" / "step_000002" / "manifest.json").write_text("0123456789")
    file = run / "metrics.jsonl"
    step = len(file.read_text().splitlines()) if file.exists() else 0
    entries = json.loads(plan.read_text())
    while True:
        for entry in entries:
            if entry["step"] == step:
                strike(entry)
        step += 1
        with file.open("a") as lines:
            lines.write(json.dumps({"step": step, "loss/policy": 0.0}) + "\n")
        time.sleep(STEP_S)


def strike(entry: dict[str, Any]) -> None:
    """Make the fault of a cell."""
    fault = entry["cell"]["fault"]
    if fault == "never comes":
        return
    note(what="fired", cell=entry["number"], step=entry["step"])
    note(what="struck", fault=fault)
    if fault == "hangs":
        time.sleep(3600)
    if fault == "ends":
        print("skyrl-nat: it is broken. Go on with resume=latest", flush=True)
        sys.exit(1)
    if fault == "ends with a traceback":
        raise RuntimeError("nobody caught me")


if __name__ == "__main__":
    main(Path(sys.argv[1]), dict(text.split("=", 1) for text in sys.argv[3:]))

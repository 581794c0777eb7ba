"""The runner of all bars: what it calls, and that one that fails does not stop the others."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BARS = ["p1", "p1-1.5b", "p2", "p2-1.5b", "p3", "p4", "p5", "p6", "p7", "p8", "sources", "engine-start", "presets"]
PYTHON = """#!/bin/bash
script=$1
[ -f "$script" ] || exit 9
if [ "${script##*/}" = random_model.py ]; then mkdir -p "$3" && touch "$3/config.json" && exit; fi
echo "$@"
[ "${script##*/}" != trainer_mfu.py ]
"""


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it with a python3 that prints what it is called with, and fails for one bar."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir(exist_ok=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    return subprocess.run(
        ["bash", str(ROOT / "benchmarks" / "run.sh"), *arguments],
        env={**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_bar_is_called_and_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    done = run(tmp_path, str(tmp_path / "out"), "/models/small", *BARS)
    assert done.returncode == 1
    assert done.stderr.strip() == f"p3 failed, see {tmp_path}/out/p3.log"
    calls = {bar: (tmp_path / "out" / f"{bar}.log").read_text().split() for bar in BARS}
    assert all(call[-2:] == ["--output", f"{tmp_path}/out/{bar}.json"] for bar, call in calls.items())
    assert calls["p2-1.5b"][1] == f"{tmp_path}/out/models/qwen2.5-1.5b"
    assert "engine.sleep=false" in calls["p2-1.5b"]
    assert 'rollout.stop=["z"]' in calls["p8"]
    assert calls["p6"][1] == "/models/small"


def test_what_is_no_bar_and_a_call_without_one_are_refused(tmp_path: Path) -> None:
    wrong = run(tmp_path, str(tmp_path), "/models/small", "p99")
    assert (wrong.returncode, "there is no bar p99" in wrong.stderr) == (1, True)
    bare = run(tmp_path, str(tmp_path))
    assert (bare.returncode, "usage:" in bare.stderr) == (2, True)

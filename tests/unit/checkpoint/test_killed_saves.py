"""A process that saves is killed at any moment."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from skyrl_nat.checkpoint.manager import CheckpointManager, step_of

PROGRAM = Path(__file__).parents[2] / "saving_program.py"
FILES = ("weights", "optimizer", "groups")
NUM_KILLS = 30


def newest_step(folder: Path) -> int:
    """Return the step that a run would go on from, 0 for none."""
    newest = CheckpointManager(folder, warn=lambda text: pytest.fail(text)).latest(is_thorough=True)
    return 0 if newest is None else step_of(newest)


def test_after_30_kills_at_random_moments_the_last_complete_checkpoint_is_always_there(tmp_path: Path):
    """CK-01, CK-02: three files, one checkpoint kept. What is found never falls back, and is what was written."""
    generator = random.Random(0)
    reached, left_half = 0, 0
    for _ in range(NUM_KILLS):
        process = subprocess.Popen([sys.executable, str(PROGRAM), str(tmp_path)])
        deadline = time.monotonic() + 60
        while newest_step_by_name(tmp_path) <= reached:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.001)
        time.sleep(generator.uniform(0, 0.05))
        process.kill()
        process.wait()
        found = newest_step(tmp_path)
        assert found > reached
        reached = found
        for name in FILES:
            text = (tmp_path / f"step_{found:06d}" / name).read_text()
            assert text == f"{name} of step {found}\n" * 5
        left_half += bool(list(tmp_path.glob("*.part")))
    assert left_half, "some were in the middle of a save"


def newest_step_by_name(folder: Path) -> int:
    """Return the highest step that a folder bears, complete or not."""
    return max((step_of(path) for path in folder.glob("step_*")), default=0)

"""Save step after step of three slowly written files into a folder, from its newest checkpoint on, until killed."""

import sys
import time
from pathlib import Path

from skyrl_nat.checkpoint.manager import CheckpointManager, step_of

manager = CheckpointManager(Path(sys.argv[1]), keep_last=1)
newest = manager.latest(is_thorough=True)
step = 0 if newest is None else step_of(newest)
while True:
    step += 1
    part = manager.begin(step)
    for name in ("weights", "optimizer", "groups"):
        with (part / name).open("w") as file:
            for _ in range(5):
                file.write(f"{name} of step {step}\n")
                file.flush()
                time.sleep(0.0005)
    manager.commit(part, {"step": step})

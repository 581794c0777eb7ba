"""WandB's own processes belong to the run."""

import os
import subprocess
import sys

ONE_STEP = """
import sys
from pathlib import Path
from skyrl_nat.config.outputs import TrackingConfig
from skyrl_nat.monitoring.wandb_backend import WandbBackend

backend = WandbBackend(Path(sys.argv[1]), TrackingConfig(wandb_mode="offline"), {}, print)
backend.log(1, {"loss": 1.0})
backend.close()
"""


def test_a_run_does_not_depend_on_the_service_of_the_process_that_started_it(tmp_path):
    """Whoever has used WandB leaves the address of its own service to all that it starts."""
    (tmp_path / "metrics.jsonl").touch()
    foreign = {"WANDB_SERVICE": f"3-1-unix-{tmp_path}/gone"}
    ended = subprocess.run(
        [sys.executable, "-c", ONE_STEP, str(tmp_path)], env={**os.environ, **foreign}, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))

"""The first words of a job's own process: it trains once and alone in its folder, then it becomes the trainer.

    usage: python -m skyrl_nat.service.runner.launch STATE_DIR JOB_ID RUN_FOLDER CWD COMMAND...

A job is begun by whoever makes its claim's file; that file stays. So nothing that is lost or told twice between the
service and Ray can run a job a second time.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from skyrl_nat.service.runner.locks import lock_file, take

LOG = "job.log"
"""File of a run folder: all that its trainer printed."""
EXIT_TWICE = 75
LOCK_S = 10.0


def launch_command(state_dir: Path, job_id: str, run_folder: Path, command: Sequence[str]) -> list[str]:
    """Return the command that a backend is to run for a job."""
    module = [sys.executable, "-m", "skyrl_nat.service.runner.launch"]
    return [*module, str(state_dir), job_id, str(run_folder), str(Path.cwd()), *command]


def claim_file(state_dir: Path, job_id: str) -> Path:
    """Return the file that says that a job was begun."""
    return state_dir / "claims" / job_id


def launch(state_dir: Path, job_id: str, run_folder: Path, command: Sequence[str]) -> NoReturn:
    """Become the trainer, or end with `EXIT_TWICE` where the job was begun before or its folder is in use."""
    claim = claim_file(state_dir, job_id)
    claim.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        _end(f"a job must run once, {job_id} was begun before. Submit another one with resume")
    if take(lock_file(state_dir, run_folder.name), LOCK_S) is None:
        _end(f"a run folder must have one trainer at a time, another process trains in {run_folder.name}")
    run_folder.mkdir(parents=True, exist_ok=True)
    log = os.open(run_folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.execv(command[0], list(command))


def _end(text: str) -> NoReturn:
    sys.stderr.write(f"skyrl-nat: {text}\n")
    sys.exit(EXIT_TWICE)


if __name__ == "__main__":
    os.chdir(sys.argv[4])
    launch(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[5:])

"""What Slurm itself does to a job that trains: another one takes its nodes, and its time ends."""

from pathlib import Path

import pytest
import sleepy_family
import small_run
from letter_family import write_letter_tasks
from slurm_cluster import SlurmCluster
from slurm_jobs import nothing_starts, require_empty, require_saved, saves_and_is_put_back, steps, submit, wait_for_step

pytestmark = pytest.mark.long

BACK_S = 20
"""What is put back waits so long, see `conftest.slurm`."""
AHEAD_S = 180
"""Of the end of a job the script asks Slurm for its signal."""


def take_all_nodes(slurm: SlurmCluster, folder: Path, until: Path) -> str:
    """Submit a job of the higher partition that fills both nodes until a file is there."""
    options = ("--parsable", "--partition=urgent", "--nodes=2", "--cpus-per-task=2", "--mem=100")
    wait = f"while [ ! -e {until} ]; do sleep 0.2; done"
    return slurm.ask("sbatch", *options, f"--output={folder}/urgent.out", "--wrap", wait)


def end_within_the_time_of_the_signal(slurm: SlurmCluster, number: str) -> None:
    """Shorten a job's time, so that two to three minutes of it are left; Slurm knows whole minutes."""
    hours, minutes, _ = slurm.job(number)["RunTime"].split(":")
    minutes_left = AHEAD_S // 60
    slurm.ask("scontrol", "update", f"jobid={number}", f"TimeLimit={60 * int(hours) + int(minutes) + minutes_left}")


@pytest.mark.timeout(900)
def test_job_that_slurm_preempts_or_whose_time_ends_saves_and_goes_on_by_itself_with_the_next_step(slurm, folder):
    """CK-11, RY-11: with the script's own `--signal`; nobody but Slurm tells the job to end."""
    (folder / "sleepy").mkdir()
    tasks = write_letter_tasks(folder / "sleepy", sleepy_family.NAME)
    overrides = (*small_run.LONG, "checkpoint.every_steps=0", *tasks)
    number = submit(slurm, folder, "told", *overrides, options=("--time=60",))
    wait_for_step(slurm, folder, "told", number, 2)

    over = folder / "over"
    urgent = take_all_nodes(slurm, folder, over)
    slurm.wait_for(urgent, "RUNNING", timeout_s=150)
    require_empty(number)
    slurm.wait_for(number, "PENDING")
    assert len(require_saved(slurm, folder, "told", number)) == 1, "by the end alone"
    reached = steps(folder, "told")[-1]
    over.touch()
    slurm.wait_for(urgent, "COMPLETED")
    wait_for_step(slurm, folder, "told", number, reached + 1)
    assert slurm.job(number)["Restarts"] == "1"

    with nothing_starts(slurm):
        end_within_the_time_of_the_signal(slurm, number)
        slurm.wait_for(number, "PENDING", timeout_s=150)
        saves_and_is_put_back(slurm, folder, "told", number)
        assert slurm.job(number)["Restarts"] == "2"
        found = steps(folder, "told")
        assert found == list(range(1, len(found) + 1)), "no step may be missing or there twice"
        assert found[-1] > reached
        slurm.ask("scancel", number)
    slurm.wait_for(number, "CANCELLED")
    require_empty(number)

"""Training under a real Slurm: two nodes, a neighbour on the same machine, the way back into the queue, a clean end."""

import json

import pytest
import sleepy_family
import small_run
from letter_family import write_letter_tasks
from marked_processes import processes_with
from signs import SIGNS, signs_of
from slurm_jobs import (
    is_put_back,
    nothing_starts,
    require_empty,
    saves_and_is_put_back,
    steps,
    submit,
    wait_for_step,
)

from skyrl_nat.config.load import config_from_file

pytestmark = pytest.mark.slow


@pytest.mark.timeout(600)
def test_jobs_on_the_same_nodes_train_apart_and_end_clean_and_one_comes_back_where_it_was(slurm, folder):
    """RY-10, RY-11, CK-11."""
    (folder / "sleepy").mkdir()
    tasks = write_letter_tasks(folder / "sleepy", sleepy_family.NAME)
    long = submit(slurm, folder, "long", *small_run.LONG, *tasks)
    wait_for_step(slurm, folder, "long", long, 1)
    both = ("--nodes=2", "--cpus-per-task=1")
    short = submit(slurm, folder, "short", "cluster.num_engines=2", options=both)
    job = slurm.wait_for(short, "COMPLETED", "FAILED")
    assert (job["JobState"], job["ExitCode"]) == ("COMPLETED", "0:0"), slurm.output(job)
    assert steps(folder, "short") == [1, 2]
    require_empty(short)
    topology = json.loads((folder / "runs" / "short" / "topology.json").read_text())
    assert sorted(engine["node"] for engine in topology["identities"]["engine"]) == ["first", "second"]
    assert topology["num_threads"] == 1, "Ray must count the job's core of each node, not all"
    assert processes_with("SLURM_JOB_ID", long), "the end of one job must leave the other alone"

    reached = steps(folder, "long")[-1]
    with nothing_starts(slurm):
        slurm.ask("scancel", "--batch", "--signal=TERM", long)
        saves_and_is_put_back(slurm, folder, "long", long)
    wait_for_step(slurm, folder, "long", long, reached + 3)

    with nothing_starts(slurm):
        slurm.ask("scontrol", "requeue", long)
        is_put_back(slurm, long)
        reached = steps(folder, "long")[-1]
    wait_for_step(slurm, folder, "long", long, reached + 2)
    assert slurm.job(long)["Restarts"] == "2"
    slurm.ask("scancel", "--full", long)
    slurm.wait_for(long, "CANCELLED")
    require_empty(long)
    found = steps(folder, "long")
    assert found == list(range(1, len(found) + 1)), "no step may be missing or there twice"


def test_bad_input_ends_the_job_with_the_trainers_exit_code_before_ray_starts(slurm, folder):
    number = submit(slurm, folder, "bad", "trainer.rollouts_per_task=-1")
    job = slurm.wait_for(number, "FAILED", "COMPLETED")
    assert job["ExitCode"] == "2:0"
    assert "trainer.rollouts_per_task must" in slurm.output(job)
    assert "Ray" not in slurm.output(job)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_usr1_ahead_of_the_time_limit_saves_and_what_was_asked_for_is_there_letter_by_letter(slurm, folder):
    """CK-11, CF-01: as `--signal=USR1@60` sends it, here to every process of the job on both nodes at once."""
    (folder / "early").mkdir()
    tasks = write_letter_tasks(folder / "early", sleepy_family.NAME)
    both = ("--nodes=2", "--cpus-per-task=1", "--signal=B:USR1@60")
    overrides = (*small_run.LONG, "checkpoint.every_steps=0", signs_of("tracking.wandb_project"), *tasks)
    number = submit(slurm, folder, "early", *overrides, options=both)
    wait_for_step(slurm, folder, "early", number, 1)
    assert config_from_file(folder / "runs" / "early" / "config.yaml").tracking.wandb_project == SIGNS
    with nothing_starts(slurm):
        slurm.ask("scancel", "--full", "--signal=USR1", number)
        saved = saves_and_is_put_back(slurm, folder, "early", number)
        assert len(saved) == 1, "saved once"
    slurm.ask("scancel", number)
    slurm.wait_for(number, "CANCELLED")

"""A run that is killed anywhere and resumed is the run that nobody disturbed."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import letter_family
import pytest
import small_run
import torch

from skyrl_nat.checkpoint.manager import CheckpointManager, read_state
from skyrl_nat.checkpoint.safe_reading import SafeReader
from skyrl_nat.checkpoint.sharded import load_sharded
from skyrl_nat.data.specs import write_tasks
from skyrl_nat.types import Task

pytestmark = pytest.mark.slow

NUM_STEPS = 4
TIMES = ("time/", "gpu/", "throughput/", "push/", "rollout/generate_s", "rollout/environment_s", "rollout/score_s")
COMMON = (
    f"trainer.steps={NUM_STEPS}",
    "checkpoint.every_steps=1",
    "evaluation.before_and_after=false",
    "evaluation.every_steps=2",
    "engine.deterministic=true",
    "optimizer.schedule=cosine",
    "optimizer.warmup_steps=2",
    "optimizer.min_lr_ratio=0.1",
)
AHEAD = (
    "name=ahead",
    *COMMON,
    "trainer.staleness=1",
    "trainer.updates_per_batch=2",
    "algorithm.old_logprobs=recompute",
    "algorithm.kl_coefficient=0.1",
    "algorithm.kl_target=0.05",
)
BESIDE = ("name=beside", *COMMON, "checkpoint.asynchronous=true", "checkpoint.keep_last=1", "checkpoint.keep_best=0")
SHAPED = (
    *COMMON,
    "evaluation.every_steps=0",
    "algorithm.kl_coefficient=0.1",
    "algorithm.kl_target=0.05",
    "algorithm.dynamic_sampling=filter",
    "environment.curriculum=easy_first",
)
LEVELS = {"a": 3, "b": 1, "c": 2, "d": 1, "e": 2, "f": 3}
"""Difficulty of each task; whatever is said to b and c has the same reward."""
WANDB = ("tracking.backends=[jsonl,console,wandb]", "tracking.wandb_mode=offline")
KILLS = (
    ("log", 1),  # nothing is saved so far: the run begins anew
    ("rollout", 1),
    ("evaluation", 2),
    ("training", 2),
    ("push", 3),
    ("checkpoint", 3),
)
"""Where the run is killed, one after the other, and how many steps it has trained by then."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resume")


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> Path:
    small_run.run(folder, "name=undisturbed", *COMMON)
    return folder / "runs" / "undisturbed"


def kill_at(folder: Path, point: str, step: int, *overrides: str) -> str:
    """Go on with a run until it kills itself; return what it printed."""
    program = (str(Path(small_run.__file__).parent / "kill_points.py"), point, str(step))
    process = small_run.start(folder, "resume=latest", *overrides, program=program)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == -signal.SIGKILL, f"not killed at {point} of step {step}: {output}"
    return output


def replay(run: Path, step: int, *overrides: str) -> subprocess.CompletedProcess[str]:
    """Replay a step without tests/ on the path: the code of the tasks' family is not needed."""
    command = [sys.executable, "-m", "skyrl_nat.cli", "replay", str(run), "--step", str(step), *overrides]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def rollouts(run: Path, step: int) -> list[dict[str, Any]]:
    """Return the records of a step without times."""
    records = [json.loads(line) for line in (run / "rollouts" / f"train_{step:06d}.jsonl").read_text().splitlines()]
    for record in records:
        for one in (record, *record["turns"]):
            for name in ("score_s", "generate_s", "environment_s"):
                one.pop(name, None)
    return records


def evaluations(run: Path) -> list[tuple[int, float]]:
    """Return step and reward of every evaluation, in the order of the file."""
    return [(entry["step"], entry["reward"]) for entry in map(json.loads, (run / "evaluations.jsonl").open())]


def without_times(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in entry.items() if not name.startswith(TIMES)} for entry in entries]


def assert_equal(run: Path, undisturbed: Path) -> list[dict[str, Any]]:
    """Compare tasks, tokens, log-probs, versions, metrics, and in the end parameters and optimizer state bit for bit.

    Returns:
        The metrics of all steps, without times.
    """
    for step in range(1, NUM_STEPS + 1):
        assert rollouts(run, step) == rollouts(undisturbed, step)
    found, expected = (without_times(small_run.metrics(one.parents[1], one.name)) for one in (run, undisturbed))
    assert [entry["step"] for entry in expected] == list(range(1, NUM_STEPS + 1))
    assert len({entry["loss/lr"] for entry in expected}) == NUM_STEPS, "a schedule that could start anew"
    assert found == expected
    last = Path("checkpoints") / f"step_{NUM_STEPS:06d}" / "policy" / "__0_0.distcp"
    assert (run / last).read_bytes() == (undisturbed / last).read_bytes()
    return found


def parameters(run: Path) -> dict[str, torch.Tensor]:
    """Return the parameters of the last checkpoint in full, by name."""
    folder = run / "checkpoints" / f"step_{NUM_STEPS:06d}" / "policy"
    stored = SafeReader(folder).read_metadata().state_dict_metadata
    found = {name: torch.empty(one.size) for name, one in stored.items() if name.startswith("model.")}
    load_sharded(folder, found, [])
    return found


@pytest.mark.timeout(600)
def test_killed_at_every_point_the_run_is_the_undisturbed_one_bit_for_bit(folder: Path, undisturbed: Path):
    """Tasks, tokens, log-probs, versions, learning rates, metrics, and in the end parameters and optimizer state."""
    for point, step in KILLS:
        kill_at(folder, point, step, "name=killed", *COMMON)
    small_run.run(folder, "name=killed", "resume=latest", *COMMON)
    run = folder / "runs" / "killed"
    assert_equal(run, undisturbed)
    assert [step for step, _ in evaluations(undisturbed)] == [2]
    assert evaluations(run) == evaluations(undisturbed), "the one that was cut off is made up for"
    assert not list(run.rglob("*.part"))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_adapts_and_what_is_left_out_goes_on_where_it_was(folder: Path):
    """A KL coefficient that moves, groups left out as flat, and tasks that come easy ones first."""
    tasks = [
        Task(
            task_id=letter,
            family=letter_family.NAME,
            payload={"letter": letter, "is_flat": letter in "bc"},
            difficulty=level,
        )
        for letter, level in LEVELS.items()
    ]
    write_tasks(tasks, folder / "levels.parquet")
    shaped = (*SHAPED, f"environment.train_files=[{folder / 'levels.parquet'}]")
    small_run.run(folder, "name=steady", *shaped)
    for point, step in (("training", 1), ("checkpoint", 3)):
        kill_at(folder, point, step, "name=shaped", *shaped)
    small_run.run(folder, "name=shaped", "resume=latest", *shaped)
    run = folder / "runs" / "shaped"
    metrics = assert_equal(run, folder / "runs" / "steady")
    trained = [{record["task_id"] for record in rollouts(run, step)} for step in range(1, NUM_STEPS + 1)]
    assert trained == [{"d", "e"}, {"a", "f"}] * 2, "an epoch of four with signal, the hardest last"
    assert sum(entry["rollout/flat_groups/count"] for entry in metrics) == 4, "b and c of each epoch"
    assert len({entry["loss/kl_coefficient"] for entry in metrics}) == NUM_STEPS


@pytest.mark.long
@pytest.mark.timeout(600)
def test_from_one_rank_to_two_and_back_a_run_goes_on(folder: Path, undisturbed: Path):
    """CK-08. Every start has its own run in WandB, whose id is in the checkpoints of that start."""
    ranks = ("name=ranks", "checkpoint.keep_last=0", *COMMON, *WANDB)
    kill_at(folder, "training", 1, *ranks)
    second = kill_at(folder, "training", 3, "cluster.num_policy_ranks=2", *ranks)
    last = small_run.run(folder, "resume=latest", "cluster.num_policy_ranks=1", *ranks)
    assert "step_000001 is of 1 policy ranks, this run has 2: random numbers of the ranks begin anew" in second
    assert "step_000003 is of 2 policy ranks, this run has 1: random numbers of the ranks begin anew" in last
    run = folder / "runs" / "ranks"
    states = [read_state(run / "checkpoints" / f"step_{step:06d}") for step in range(1, NUM_STEPS + 1)]
    assert [state["num_policy_ranks"] for state in states] == [1, 2, 2, 1]
    assert [state["position"] for state in states] == [2, 4, 6, 8]
    for step in range(1, NUM_STEPS + 1):
        for found, expected in zip(rollouts(run, step), rollouts(undisturbed, step), strict=True):
            for name in ("rollout_id", "task_id", "token_versions"):
                assert found[name] == expected[name], (step, name)
    rates = [[entry["loss/lr"] for entry in small_run.metrics(folder, name)] for name in ("ranks", "undisturbed")]
    assert rates[0] == rates[1]
    expected = parameters(undisturbed)
    for name, tensor in parameters(run).items():
        assert (tensor - expected[name]).abs().max() < 1e-4 * expected[name].abs().max(), name
    ids = [state["tracker_runs"]["wandb"] for state in states]
    starts = sorted((run / "wandb").glob("offline-run-*"))
    assert len(starts) == 3
    assert ids == [starts[number].name.rpartition("-")[2] for number in (0, 1, 1, 2)]


@pytest.mark.long
def test_a_checkpoint_that_is_evaluated_stays_though_newer_ones_are_saved(folder: Path, undisturbed: Path):
    """CK-10: keep 1; saved while `evaluate` loads, another process."""
    run = folder / "runs" / "evaluated"
    shutil.copytree(undisturbed, run)
    topology = run / "topology.json"
    topology.unlink()
    checkpoints = CheckpointManager(run / "checkpoints", keep_last=1)
    process = small_run.Running([sys.executable, "-m", "skyrl_nat.cli", "evaluate", str(run)])
    deadline = time.monotonic() + 240
    while not topology.exists():  # the workers are there, nothing is loaded
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    checkpoints.commit(checkpoints.begin(NUM_STEPS + 1), {"step": NUM_STEPS + 1})
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert evaluations(run)[-1][0] == NUM_STEPS
    assert [path.name for path in checkpoints.all()] == [f"step_{NUM_STEPS + number:06d}" for number in (0, 1)]
    checkpoints.commit(checkpoints.begin(NUM_STEPS + 2), {"step": NUM_STEPS + 2})
    assert [path.name for path in checkpoints.all()] == [f"step_{NUM_STEPS + 2:06d}"]


@pytest.mark.long
def test_killed_while_a_checkpoint_is_written_beside_training_it_is_the_same_run(folder: Path, undisturbed: Path):
    """CK-01, CK-02: nothing half counts, the last complete one is still there, and what is complete is exact."""
    for point, step in (("checkpoint", 2), ("manifest", 3)):
        kill_at(folder, point, step, *BESIDE)
        names = sorted(path.name for path in (folder / "runs" / "beside" / "checkpoints").iterdir())
        assert len(names) == 2
        assert names[1] == names[0][:-6] + f"{int(names[0][-6:]) + 1:06d}.part"
    small_run.run(folder, "resume=latest", *BESIDE)
    run = folder / "runs" / "beside"
    assert without_times(small_run.metrics(folder, "beside")) == without_times(small_run.metrics(folder, "undisturbed"))
    last = Path("checkpoints") / f"step_{NUM_STEPS:06d}" / "policy" / "__0_0.distcp"
    assert (run / last).read_bytes() == (undisturbed / last).read_bytes()
    assert [path.name for path in (run / "checkpoints").iterdir()] == [f"step_{NUM_STEPS:06d}"]


def test_a_finished_run_is_not_trained_again(folder: Path, undisturbed: Path):
    """CK-05: resumed at the end, it says so and ends with 0; nothing is trained or written."""
    before = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*")}
    output = small_run.run(folder, "name=undisturbed", "resume=latest", *COMMON, timeout_s=60)
    assert "already finished" in output
    assert {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*")} == before


@pytest.mark.long
def test_run_ahead_of_its_trainer_loses_no_rollout_and_trains_none_twice(folder: Path):
    """Which policy played a group may differ from an undisturbed run; which groups are trained, and when, may not."""
    kill_at(folder, "training", NUM_STEPS - 1, *AHEAD)
    run = folder / "runs" / "ahead"
    saved = run / "checkpoints" / f"step_{NUM_STEPS - 1:06d}" / "groups.jsonl"
    kept = {record["rollout_id"]: record["token_ids"] for record in map(json.loads, saved.read_text().splitlines())}
    small_run.run(folder, *AHEAD, "resume=latest")
    assert [path.name for path in run.glob("rollouts/*.abandoned")] == [f"train_{NUM_STEPS:06d}.abandoned"]
    trained = [record for step in range(1, NUM_STEPS + 1) for record in rollouts(run, step)]
    ids = [record["rollout_id"] for record in trained]
    assert ids == [f"train-{index}-{number}" for index in range(2 * NUM_STEPS) for number in range(4)]
    lags = [place // 8 - record["oldest_version"] for place, record in enumerate(trained)]
    assert set(lags) == {0, 1}
    assert [entry["step"] for entry in small_run.metrics(folder, "ahead")] == list(range(1, NUM_STEPS + 1))
    found = {record["rollout_id"]: record["token_ids"] for record in trained}
    assert all(found[name] == tokens for name, tokens in kept.items() if name in found)


@pytest.mark.long
def test_a_step_of_a_resumed_run_is_trained_again_from_its_folder(folder: Path):
    """On workers of its own, reference included; `tests/unit/controller/test_replay.py` has the cases."""
    run = folder / "runs" / "ahead"
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    done = replay(run, NUM_STEPS)
    assert done.returncode == 0, done.stderr
    found = re.search(r"(\d+) of (\d+) figures are equal", done.stderr)
    assert found is not None
    assert found[1] == found[2]
    assert int(found[1]) > 30
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_replay_that_differs_ends_with_3(undisturbed: Path):
    """A learning rate that is not the run's."""
    done = replay(undisturbed, 1, "optimizer.lr=2e-3")
    assert done.returncode == 3, done.stderr
    assert "loss/lr" in done.stderr
    assert "Every figure must be the recorded one, 1 of" in done.stderr


def test_a_run_whose_time_is_over_ends_as_after_its_last_step_and_goes_on(folder: Path) -> None:
    timed = ("name=timed", "trainer.steps=4", "trainer.staleness=1", "resume=latest")
    printed = small_run.run(folder, *timed, "trainer.max_minutes=0.01")
    assert re.search(
        r"ended early, after step 1 of 4: the time of trainer\.max_minutes is over", " ".join(printed.split())
    )
    assert [step for step, _ in evaluations(folder / "runs" / "timed")] == [0, 1]
    small_run.run(folder, *timed)
    assert [entry["step"] for entry in small_run.metrics(folder, "timed")] == [1, 2, 3, 4]
    assert [step for step, _ in evaluations(folder / "runs" / "timed")] == [0, 1, 4]

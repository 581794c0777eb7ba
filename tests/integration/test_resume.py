"""A run that is killed anywhere and resumed is the run that nobody disturbed."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import small_run

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


def kill_at(folder: Path, point: str, step: int, *overrides: str) -> None:
    """Go on with a run until it kills itself."""
    program = (str(Path(small_run.__file__).parent / "kill_points.py"), point, str(step))
    process = small_run.start(folder, "resume=latest", *overrides, program=program)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == -signal.SIGKILL, f"not killed at {point} of step {step}: {output}"


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


def test_killed_at_every_point_the_run_is_the_undisturbed_one_bit_for_bit(folder: Path, undisturbed: Path):
    """Tasks, tokens, log-probs, versions, learning rates, metrics, and in the end parameters and optimizer state."""
    for point, step in KILLS:
        kill_at(folder, point, step, "name=killed", *COMMON)
    small_run.run(folder, "name=killed", "resume=latest", *COMMON)
    run = folder / "runs" / "killed"
    for step in range(1, NUM_STEPS + 1):
        assert rollouts(run, step) == rollouts(undisturbed, step)
    expected = without_times(small_run.metrics(folder, "undisturbed"))
    assert [entry["step"] for entry in expected] == list(range(1, NUM_STEPS + 1))
    assert len({entry["loss/lr"] for entry in expected}) == NUM_STEPS, "a schedule that could start anew"
    assert without_times(small_run.metrics(folder, "killed")) == expected
    assert [step for step, _ in evaluations(undisturbed)] == [2]
    assert evaluations(run) == evaluations(undisturbed), "the one that was cut off is made up for"
    last = Path("checkpoints") / f"step_{NUM_STEPS:06d}" / "policy" / "__0_0.distcp"
    assert (run / last).read_bytes() == (undisturbed / last).read_bytes()
    assert not list(run.rglob("*.part"))


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

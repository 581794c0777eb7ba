"""A step trained again from the run's folder is the recorded one, bit for bit, or the difference is seen."""

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from fakes import LocalCalls
from rich.console import Console
from toy_run import ToyRun, make_toy_model, open_run

from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.cli import main
from skyrl_nat.config.load import save_config
from skyrl_nat.controller import replay as replaying
from skyrl_nat.controller.replay import DIGEST, Figure, Recording, Retraining, retrain, show_figures
from skyrl_nat.controller.update import Coefficients, update_policy
from skyrl_nat.errors import CheckpointError, ConfigError, StoppedError, WorkerError
from skyrl_nat.monitoring.console import ConsoleBackend
from skyrl_nat.rollouts.recorder import RolloutRecorder

NUM_STEPS = 4
QUIET = ConsoleBackend(Console(quiet=True))
PLAIN = ("trainer.rollouts_per_task=4",)
RUNS = {
    "plain": PLAIN,
    "stale": (*PLAIN, "trainer.staleness=1", "algorithm.old_logprobs=rollout"),
    "updates": (*PLAIN, "trainer.updates_per_batch=2", "algorithm.old_logprobs=recompute"),
    "reference": (*PLAIN, "algorithm.kl_coefficient=0.1", "algorithm.kl_target=0.001", "algorithm.kl_horizon=50"),
    "replaced": (*PLAIN, "algorithm.dynamic_sampling=replace"),
    "covariance": (*PLAIN, "algorithm.policy_loss=clip_cov", "algorithm.covariance_share=0.3"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_toy_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def recorded(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what gives the folder of a run of four steps, with a checkpoint of steps 2 and 4."""
    known: dict[str, Path] = {}

    def folder_of(name: str) -> Path:
        if name not in known:
            known[name] = tmp_path_factory.mktemp(name)
            with open_run(model, *RUNS[name], "resume=never") as run:
                asyncio.run(record(run, known[name]))
        return known[name]

    return folder_of


async def record(run: ToyRun, folder: Path) -> None:
    """Train four steps and leave what a run leaves; with staleness each batch is of the policy before the last."""
    save_config(run.config, folder / "config.yaml")
    (folder / "batch_plan.json").write_text(json.dumps({"optimizer steps": 300}))
    (folder / "topology.json").write_text(json.dumps({"num_threads": 1}))
    recorder, checkpoints = RolloutRecorder(folder / "rollouts"), CheckpointManager(folder / "checkpoints")
    ahead = [run.play() for _ in range(run.config.trainer.staleness)]
    with (folder / "metrics.jsonl").open("w") as file:
        while run.step < NUM_STEPS:
            ahead.append(run.play())
            groups = ahead.pop(0)
            metrics = await update_policy(run, groups)
            run.step += 1
            run.sampler.load(run.policy.worker.export_weights())
            recorder.write(run.step, groups)
            file.write(json.dumps({"step": run.step, **metrics}) + "\n")
            if run.step % 2 == 0:
                part = checkpoints.begin(run.step)
                run.policy.worker.save(part / "policy")
                checkpoints.commit(part, {"step": run.step, "coefficients": dataclasses.asdict(run.coefficients)})


def replayed(folder: Path, step: int) -> list[Figure]:
    """Replay a step with fresh workers of this process."""
    recording = Recording(folder)
    start = recording.start_before(step)
    config = recording.config
    with open_run(Path(config.model.path), *RUNS[folder.name.rstrip("0123456789")]) as toy:
        run = Retraining(
            config=config,
            policy=LocalCalls([toy.policy.worker]),
            reference=None if toy.reference is None else LocalCalls([toy.reference.worker]),  # type: ignore[union-attr]
            coefficients=Coefficients(config.algorithm.kl_coefficient, config.algorithm.entropy_coefficient),
        )
        return asyncio.run(retrain(run, recording, start, step, QUIET))


def different(figures: list[Figure]) -> list[str]:
    return [figure.name for figure in figures if not figure.is_equal]


@pytest.mark.parametrize("name", RUNS)
def test_every_step_is_trained_as_it_was(recorded: Callable[[str], Path], name: str):
    """From the model, from the checkpoint just before, and from one two steps before; step 4 has its parameters."""
    for step, num_steps in ((1, 1), (2, 2), (3, 1), (4, 2)):
        figures = replayed(recorded(name), step)
        assert different(figures) == []
        assert len({figure.step for figure in figures}) == num_steps
        assert (figures[-1].name == DIGEST) == (step % 2 == 0)
        assert {"loss/policy", "loss/grad_norm", "loss/lr"} < {figure.name for figure in figures}
    show_figures(figures, QUIET)


def test_coefficients_moved_in_the_recorded_run(recorded: Callable[[str], Path]):
    """Otherwise nothing would show that a replay goes on from those of the checkpoint."""
    lines = (recorded("reference") / "metrics.jsonl").read_text().splitlines()
    assert len({json.loads(line)["loss/kl_coefficient"] for line in lines}) == NUM_STEPS


def copy_of(folder: Path, target: Path) -> Path:
    """Return a copy of a run, under a name that says which one it is."""
    copied = target / folder.name
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            (copied / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            (copied / path.relative_to(folder)).write_bytes(path.read_bytes())
    return copied


def flip_last_digit(record: dict) -> None:
    record["rollout_logprobs"][0] *= 1 + 2e-7


def swap_a_token(record: dict) -> None:
    record["token_ids"][-1] = (record["token_ids"][-1] + 1) % 8


def raise_reward(record: dict) -> None:
    record["reward"] += 0.25


@pytest.mark.parametrize("change", [flip_last_digit, swap_a_token, raise_reward])
def test_a_changed_rollout_file_is_noticed(recorded: Callable[[str], Path], tmp_path: Path, change):
    folder = copy_of(recorded("stale"), tmp_path)
    path = folder / "rollouts" / "train_000003.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    change(records[0])
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    figures = replayed(folder, 4)
    assert {figure.step for figure in figures if not figure.is_equal} == {3, 4}, "the next step starts from there"
    assert DIGEST in different(figures)
    with pytest.raises(StoppedError, match=r"Every figure must be the recorded one, \d+ of \d+ are not"):
        show_figures(figures, QUIET)


def test_a_step_that_failed_in_training_is_trained_again_from_its_rollouts(recorded, tmp_path: Path):
    """Its line is missing: there is nothing to compare with, and what it trained on is the run's."""
    folder = copy_of(recorded("plain"), tmp_path)
    record = folder / "metrics.jsonl"
    record.write_text("".join(record.read_text().splitlines(keepends=True)[:3]))
    shutil.rmtree(folder / "checkpoints" / "step_000004")
    figures = replayed(folder, 4)
    assert {figure.step for figure in figures} == {3}
    assert different(figures) == []
    with pytest.raises(ConfigError, match="--step must be one that"):
        replayed(folder, 5)


def test_a_branch_that_was_left_behind_is_no_step_that_failed(recorded, tmp_path: Path):
    """The run went on from step 2, and has trained nothing since."""
    folder = copy_of(recorded("plain"), tmp_path)
    record = folder / "metrics.jsonl"
    record.write_text("".join(record.read_text().splitlines(keepends=True)[:2]))
    CheckpointManager(folder / "checkpoints").set_aside(folder / "checkpoints" / "step_000002")
    assert Recording(folder).start_before(3) is not None, "as if it had failed in training"
    RolloutRecorder(folder / "rollouts").set_aside(2)
    with pytest.raises(ConfigError, match="has trained, got 3; it has steps 1 to 2"):
        Recording(folder).start_before(3)
    assert different(replayed(folder, 2)) == []


def test_what_is_replayed_from_stays_though_its_run_goes_on(recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """CK-10: step 3 begins at the checkpoint of step 2; its run keeps 1, and saves while the workers start."""
    folder = tmp_path / "plain"
    shutil.copytree(recorded("plain"), folder)
    checkpoints = CheckpointManager(folder / "checkpoints", keep_last=1)

    @contextlib.asynccontextmanager
    async def start(*_: object, **__: object) -> AsyncIterator[None]:
        checkpoints.commit(checkpoints.begin(5), {"step": 5})
        assert [path.name for path in checkpoints.all()] == ["step_000002", "step_000005"]
        raise WorkerError("no worker")
        yield

    monkeypatch.setattr(replaying, "start_topology", start)
    with pytest.raises(WorkerError, match="no worker"):
        asyncio.run(replaying.replay(Recording(folder), 3, QUIET))


def test_order_of_groups_is_that_of_training(recorded: Callable[[str], Path], tmp_path: Path):
    folder = copy_of(recorded("updates"), tmp_path)
    path = folder / "rollouts" / "train_000003.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[8:] + lines[:8]))
    assert different(replayed(folder, 3)) != []


def test_nothing_is_written_into_the_folder(recorded: Callable[[str], Path]):
    def contents() -> dict[str, str]:
        files = sorted(path for path in recorded("plain").rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    before = contents()
    replayed(recorded("plain"), 4)
    assert contents() == before


def test_a_damaged_checkpoint_is_refused_and_one_that_is_not_needed_does_not_matter(recorded, tmp_path: Path):
    folder = copy_of(recorded("plain"), tmp_path)
    (folder / "checkpoints" / "step_000004" / "policy" / ".metadata").write_text("cut")
    assert different(replayed(folder, 3)) == []
    with pytest.raises(CheckpointError, match="missing or cut"):
        replayed(folder, 4)


@pytest.mark.parametrize(
    ("prepare", "step", "message"),
    [
        (lambda run: None, 9, "--step must be one that"),
        (lambda run: None, 0, "it has steps 1 to 4"),
        (lambda run: (run / "config.yaml").unlink(), 1, "must be a run's saved config.yaml"),
        (lambda run: (run / "batch_plan.json").unlink(), 1, "Copy the whole folder"),
        (lambda run: (run / "metrics.jsonl").write_text('{"step": 1, "ev'), 3, "it has no step"),
        (
            lambda run: (run / "rollouts" / "train_000003.jsonl").unlink(),
            4,
            "must be there to replay step 4 from step 2",
        ),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(recorded, tmp_path: Path, capsys, prepare, step: int, message: str):
    folder = copy_of(recorded("plain"), tmp_path)
    prepare(folder)
    assert main(["replay", str(folder), "--step", str(step)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]


def test_a_model_that_has_moved_is_said_before_anything_starts(recorded, capsys):
    code = main(["replay", str(recorded("plain")), "--step", "1", "model.path=/nowhere/model"])
    assert code == 2
    assert capsys.readouterr().err.count("model.path must be an existing folder") == 1


def test_a_run_that_began_with_another_runs_checkpoint_starts_there(recorded, tmp_path: Path):
    """Its own folder has no rollouts of the steps before."""
    first, folder = recorded("plain"), copy_of(recorded("plain"), tmp_path)
    text = (folder / "config.yaml").read_text()
    begun = first / "checkpoints" / "step_000002"
    (folder / "config.yaml").write_text(text.replace("resume: never", f"resume: {begun}"))
    for path in (folder / "checkpoints" / "step_000002").rglob("*"):
        if path.is_file():
            path.unlink()
    for step in (1, 2):
        (folder / "rollouts" / f"train_00000{step}.jsonl").unlink()
    assert Recording(folder).start_before(4) == begun
    assert different(replayed(folder, 4)) == []

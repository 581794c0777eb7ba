"""Whether a run has anything left to do, by what its folder holds."""

import asyncio
import contextlib
import gc
import json
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.checkpoint.mirror import Mirror
from skyrl_nat.cli import main
from skyrl_nat.config.load import load_config, save_config
from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller import evaluate as evaluating
from skyrl_nat.controller import grace, opening
from skyrl_nat.controller.evaluate import EVALUATIONS, is_evaluated
from skyrl_nat.controller.opening import find_checkpoint, finished_step, open_run
from skyrl_nat.controller.run import Run
from skyrl_nat.errors import CheckpointError, ConfigError, StoppedError, WorkerError
from skyrl_nat.evaluation.evaluator import summarize
from skyrl_nat.rollouts.recorder import RolloutRecorder


def config_of(folder: Path, *overrides: str) -> RunConfig:
    return load_config([f"root_dir={folder}", "name=run", "resume=latest", "trainer.tasks_per_step=5", *overrides])


def save(folder: Path, step: int) -> Path:
    manager = CheckpointManager(folder / "run" / "checkpoints")
    part = manager.begin(step)
    (part / "data.bin").write_text("weights")
    return manager.commit(part, {"step": step})


def test_latest_passes_over_what_is_damaged_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """CK-01: the newest one has its size, and other bytes."""
    config = config_of(tmp_path)
    assert find_checkpoint(config) is None
    older, newest = save(tmp_path, 9), save(tmp_path, 10)
    assert find_checkpoint(config) == newest
    assert caplog.messages == []
    (newest / "data.bin").write_text("weightz")
    assert find_checkpoint(config) == older
    assert [text.split(":")[0] for text in caplog.messages] == ["checkpoint step_000010 is damaged and skipped"]
    config.resume = str(newest)
    with pytest.raises(CheckpointError, match=r"missing or changed: data\.bin"):
        find_checkpoint(config)
    config.resume = str(older)
    assert find_checkpoint(config) == older
    (older / "data.bin").unlink()
    with pytest.raises(CheckpointError, match="got 2 damaged ones"):
        find_checkpoint(config_of(tmp_path))


def test_where_nothing_whole_is_here_the_mirror_is_asked(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/mirror"
    config = config_of(tmp_path, f"checkpoint.mirror={url}")
    own = save(tmp_path, 3)
    Mirror(f"{url}/run").push(own)
    Mirror(f"{url}/run").push(save(tmp_path, 4))
    (own.parent / "step_000004").rename(tmp_path / "away")
    assert find_checkpoint(config) == own, "what is here comes first"
    (own / "data.bin").unlink()
    assert find_checkpoint(config) == own.parent / "step_000004"
    shutil.rmtree(config.run_dir)
    assert find_checkpoint(config) == own.parent / "step_000004"
    assert (own.parent / "step_000004" / "data.bin").read_text() == "weights"


def test_what_a_run_begins_with_stays_until_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CK-10: a checkpoint of another run, which trains on and keeps 1 while the workers of this one start."""
    begun = save(tmp_path, 1)
    other = CheckpointManager(begun.parent, keep_last=1)

    def save_more(step: int) -> list[str]:
        other.commit(other.begin(step), {"step": step})
        return [path.name for path in other.all()]

    @contextlib.asynccontextmanager
    async def start(*_: object) -> AsyncIterator[None]:
        assert save_more(2) == ["step_000001", "step_000002"]
        raise WorkerError("no worker")
        yield

    async def open_it() -> None:
        async with open_run(config_of(tmp_path / "new", f"resume={begun}", "trainer.steps=1")):
            pytest.fail("it has no workers")

    data = SimpleNamespace(train_tasks=range(10), validation_tasks=[])
    for name, found in (("load_data", data), ("resolve_model", tmp_path), ("num_query_heads", 2)):
        monkeypatch.setattr(opening, name, lambda *_, found=found: found)
    monkeypatch.setattr(opening, "start_topology", start)
    with pytest.raises(WorkerError, match="no worker"):
        asyncio.run(open_it())
    assert save_more(3) == ["step_000003"]


def test_a_url_names_a_checkpoint(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/mirror"
    Mirror(url).push(save(tmp_path, 3))
    shutil.rmtree(tmp_path / "run")
    assert find_checkpoint(config_of(tmp_path, f"resume={url}/step_000003")) == (
        tmp_path / "run" / "checkpoints" / "step_000003"
    )
    with pytest.raises(CheckpointError, match="step 4 must be in"):
        find_checkpoint(config_of(tmp_path, f"resume={url}/step_000004"))
    with pytest.raises(ConfigError, match="must end with the folder of a checkpoint"):
        find_checkpoint(config_of(tmp_path, f"resume={url}"))


@pytest.mark.parametrize(
    ("step", "overrides", "expected"),
    [
        (4, ("trainer.steps=6",), None),
        (6, ("trainer.steps=6",), 6),
        (6, ("trainer.steps=4",), 6),
        (6, ("trainer.steps=7",), None),
        (4, ("trainer.steps=0", "trainer.epochs=3"), None),
        (6, ("trainer.steps=0", "trainer.epochs=3"), 6),
        (6, ("trainer.steps=6", "evaluation.before_and_after=true"), None),
    ],
)
def test_a_run_is_finished_with_its_last_step_and_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, overrides: tuple[str, ...], expected: int | None
) -> None:
    """CK-05: 10 rows, batches of 5, 3 epochs are 6 steps; what is left after 6 is at most the evaluation."""
    monkeypatch.setattr(opening, "load_data", lambda config: SimpleNamespace(train_tasks=range(10)))
    save(tmp_path, step)
    assert finished_step(config_of(tmp_path, "evaluation.before_and_after=false", *overrides)) == expected


def test_once_evaluated_it_is_finished(tmp_path: Path) -> None:
    config = config_of(tmp_path, "trainer.steps=6", "evaluation.before_and_after=true")
    assert finished_step(config) is None, "nothing is saved"
    save(tmp_path, 6)
    path = config.run_dir / EVALUATIONS
    path.write_text(json.dumps({"step": 0, "num_tasks": 2}) + "\n")
    assert finished_step(config) is None
    path.write_text(path.read_text() + json.dumps({"step": 6, "num_tasks": 2}) + "\n")
    assert finished_step(config) == 6


def test_an_evaluation_done_again_replaces_its_line_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / EVALUATIONS
    assert not is_evaluated(tmp_path, 0)
    for step in (0, 2, 4, 2):
        evaluating._record(path, summarize(step, []))
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 4, 2]
    assert is_evaluated(tmp_path, 2)
    assert not is_evaluated(tmp_path, 3)


def judge(folder: Path, rewards: dict[int, float]) -> None:
    """Write down evaluations of the run in a folder."""
    lines = [summarize(step, []).to_dict() | {"reward": reward} for step, reward in rewards.items()]
    (folder / "run" / EVALUATIONS).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_best_is_the_checkpoint_with_the_highest_recorded_reward(tmp_path: Path) -> None:
    """Step 6 was better, and is not kept."""
    config = config_of(tmp_path, "resume=best")
    for step in (2, 4, 8):
        save(tmp_path, step)
    with pytest.raises(ConfigError, match="resume=best must find an evaluation of a checkpoint"):
        find_checkpoint(config)
    judge(tmp_path, {6: 1.0})
    with pytest.raises(ConfigError, match="resume=best must find an evaluation of a checkpoint"):
        find_checkpoint(config)
    judge(tmp_path, {2: 0.25, 4: 0.5, 6: 1.0, 8: 0.25})
    best = find_checkpoint(config)
    assert best == tmp_path / "run" / "checkpoints" / "step_000004"
    (best / "data.bin").unlink()
    with pytest.raises(CheckpointError, match=r"missing or cut: data\.bin"):
        find_checkpoint(config)


@pytest.fixture
def evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path | None]:
    """Return what `skyrl-nat evaluate` would load; it ends there."""
    found: list[Path | None] = []
    find = opening.find_checkpoint

    def find_and_stop(*arguments: object) -> None:
        found.append(find(*arguments))  # type: ignore[arg-type]
        if found[-1] is not None:
            raise StoppedError((found[-1] / "data.bin").read_text())

    monkeypatch.setattr(opening, "find_checkpoint", find_and_stop)
    config = config_of(tmp_path)
    config.run_dir.mkdir()
    save_config(config, config.run_dir / "config.yaml")
    return found


def test_evaluate_passes_over_a_newest_checkpoint_that_is_damaged(tmp_path: Path, evaluated, capsys) -> None:
    run = str(tmp_path / "run")
    assert main(["evaluate", run]) == 2
    assert "must hold a checkpoint to evaluate, found none" in capsys.readouterr().err
    for step in (2, 4, 6):
        save(tmp_path, step)
    (tmp_path / "run" / "checkpoints" / "step_000006" / "data.bin").write_text("weightz")
    assert main(["evaluate", run]) == 3
    assert main(["evaluate", run, "--checkpoint", "best"]) == 2
    assert "resume=best must find an evaluation" in capsys.readouterr().err
    judge(tmp_path, {2: 0.5, 4: 0.25})
    assert main(["evaluate", run, "--checkpoint", "best"]) == 3
    assert main(["evaluate", run, "--checkpoint", f"{run}/checkpoints/step_000004"]) == 3
    assert [path and path.name for path in evaluated] == [None, "step_000004", "step_000002", "step_000004"]


def test_evaluate_refuses_the_checkpoint_of_another_run(tmp_path: Path, monkeypatch, capsys) -> None:
    """Its result would be recorded as that of a step of this run, and might choose the best one."""
    other = save(tmp_path / "elsewhere", 4)
    config = config_of(tmp_path)
    config.run_dir.mkdir()
    save_config(config, config.run_dir / "config.yaml")
    monkeypatch.setattr(opening, "load_data", lambda config: None)
    assert main(["evaluate", str(tmp_path / "run"), "--checkpoint", str(other)]) == 2
    said = capsys.readouterr().err
    assert f"--checkpoint must be in {tmp_path}/run/checkpoints, got {other}" in said
    assert not (tmp_path / "run" / "evaluations.jsonl").exists()


@pytest.mark.parametrize("protocol", ["file", "memory"])
def test_evaluate_takes_a_url_and_leaves_the_runs_own_checkpoint(
    tmp_path: Path, evaluated, capsys, protocol: str
) -> None:
    url = f"{protocol}://{tmp_path}/mirror"
    own = save(tmp_path, 3)
    Mirror(url).push(own)
    (own / "data.bin").write_text("of this run")
    assert main(["evaluate", str(tmp_path / "run"), "--checkpoint", f"{url}/step_000003"]) == 3
    assert capsys.readouterr().err == "skyrl-nat: weights\n"
    assert evaluated[0].parent.name.startswith("fetched-")
    assert (own / "data.bin").read_text() == "of this run"
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["checkpoints", "config.yaml"]
    assert main(["evaluate", str(tmp_path / "run"), "--checkpoint", "https://u:distinctive@h/step_000003"]) == 2
    assert "distinctive" not in capsys.readouterr().err


def run_at(folder: Path, step: int) -> Run:
    """Return a run that has trained some steps, evaluated steps 2 and 4, and has rollouts of step 5."""
    run = object.__new__(Run)
    run.folder, run.step, run.rewards = folder, step, {2: 0.25, 4: 0.5}
    run.evaluations = [summarize(2, []), summarize(4, [])]
    run.recorder = RolloutRecorder(folder / "rollouts")
    for number in (2, 4, 5):
        run.recorder.write(number, [])
    for number in (2, 4):
        evaluating._record(folder / EVALUATIONS, summarize(number, []))
    run.rewound = []  # type: ignore[attr-defined]
    run.tracker = SimpleNamespace(rewind=run.rewound.append, watch=lambda live: None)  # type: ignore[assignment,attr-defined]
    return run


async def nothing(*_: object, **__: object) -> str:
    return "eager"


async def go_on(run: Run, start: Path) -> None:
    """Begin a process with a checkpoint."""
    run.data = SimpleNamespace(validation_tasks=[])  # type: ignore[assignment]
    run.total_steps = 9
    run.write_topology = lambda: None  # type: ignore[method-assign]
    run.policy = SimpleNamespace(call_one=nothing)  # type: ignore[assignment]
    await opening._begin(run, start, is_training=True)


async def restart(run: Run, start: Path) -> None:
    """Put new ranks in the policy's place."""
    run.producer = SimpleNamespace(close=nothing)  # type: ignore[assignment]
    run.topology = SimpleNamespace(restart_policy=nothing)  # type: ignore[assignment]
    run.checkpoints = CheckpointManager(start.parent)
    run.devices = SimpleNamespace(forget_policy=lambda: None)  # type: ignore[assignment]
    run.account = SimpleNamespace(interrupt=lambda: None)  # type: ignore[assignment]
    await run.restart_policy()


@pytest.mark.parametrize("begin", [go_on, restart])
def test_what_was_recorded_of_later_steps_is_left_behind(tmp_path: Path, begin) -> None:
    """By a start with an older checkpoint, and by a restart of the policy."""
    start = save(tmp_path, 2)
    run = run_at(tmp_path / "run", 4)

    async def load(checkpoint: Path) -> None:
        assert checkpoint == start
        run.step = 2

    run.load_checkpoint = load  # type: ignore[method-assign]
    run.saver = SimpleNamespace(go_on_from=nothing, settle=nothing)  # type: ignore[assignment]
    asyncio.run(begin(run, start))
    assert sorted(path.name for path in (run.folder / "rollouts").iterdir()) == [
        "train_000002.jsonl",
        "train_000004.abandoned",
        "train_000005.abandoned",
    ]
    assert [result.step for result in run.evaluations] == [2]
    assert not is_evaluated(run.folder, 4)
    assert run.rewound == [2]  # type: ignore[attr-defined]


def test_a_restart_before_the_first_save_goes_back_to_the_checkpoint_of_another_run(tmp_path: Path) -> None:
    theirs, run = save(tmp_path / "theirs", 2), run_at(tmp_path / "run", 4)
    loaded: list[Path] = []

    async def load(checkpoint: Path) -> None:
        loaded.append(checkpoint)
        run.step = 2

    run.load_checkpoint = load  # type: ignore[method-assign]
    run.saver = SimpleNamespace(go_on_from=nothing, settle=nothing)  # type: ignore[assignment]
    asyncio.run(go_on(run, theirs))
    asyncio.run(restart(run, tmp_path / "run" / "checkpoints" / "none"))
    assert loaded == [theirs, theirs]
    assert run.step == 2


def test_what_hangs_at_the_end_of_a_stopped_run_is_said_and_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rollouts that do not end, a checkpoint that was given 0.1 s and trackers that do not close."""
    free, said, closed = threading.Event(), [], []

    async def for_ever() -> None:
        await asyncio.Event().wait()

    async def save(grace_of_run: grace.Grace) -> None:
        closed.append(grace_of_run.seconds)

    async def scenario() -> None:
        run: Any = SimpleNamespace(
            grace=grace.Grace(0.1),
            console=console,
            producer=SimpleNamespace(close=for_ever),
            saver=SimpleNamespace(close=save),
        )
        async with opening._tracking(config_of(tmp_path), console):
            await opening._close(run)
            raise asyncio.CancelledError

    console: Any = SimpleNamespace(warn=said.append)
    monkeypatch.setattr(opening, "Tracker", lambda *_: SimpleNamespace(close=free.wait))
    monkeypatch.setattr(opening, "TRACKERS_S", 0.1)
    monkeypatch.setattr(grace, "CLOSING_S", 0.1)
    try:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(scenario())
    finally:
        free.set()
    assert closed == [0.1]
    assert said == [
        "rollouts in flight did not end when they were told to, and are left behind",
        "trackers must close within 0.1 s: what they have not sent stays in the run folder",
    ]


def test_what_was_there_at_the_start_is_not_collected_while_a_run_is_open() -> None:
    async def run() -> None:
        async with opening._start_not_collected():
            assert gc.get_freeze_count() > 10_000
            raise WorkerError("ended")

    before = gc.get_freeze_count()
    with pytest.raises(WorkerError, match="ended"):
        asyncio.run(run())
    assert gc.get_freeze_count() <= before

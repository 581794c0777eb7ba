"""Whether a run has anything left to do, by what its folder holds."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.checkpoint.mirror import Mirror
from skyrl_nat.config.load import load_config
from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller import evaluate as evaluating
from skyrl_nat.controller import opening
from skyrl_nat.controller.evaluate import EVALUATIONS, is_evaluated
from skyrl_nat.controller.opening import find_checkpoint, finished_step, open_run
from skyrl_nat.errors import CheckpointError, ConfigError, WorkerError
from skyrl_nat.evaluation.evaluator import summarize


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

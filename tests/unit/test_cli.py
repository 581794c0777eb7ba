"""What leaves the program when a command fails: one sentence and an exit code."""

import errno
from pathlib import Path

import pytest

from skyrl_nat import cli
from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.config.load import load_config, save_config
from skyrl_nat.errors import ConfigError, StoppedError, WorkerError


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigError("x must be y, got z."), 2, "skyrl-nat: x must be y, got z."),
        (StoppedError("enough."), 3, "skyrl-nat: enough."),
        (WorkerError("engine 0 died."), 1, "skyrl-nat: engine 0 died."),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "No space left on device. Free space, then go on"),
        (KeyboardInterrupt(), 130, "stopped. Go on with resume=latest"),
    ],
)
def test_every_failure_is_a_sentence_and_a_code(monkeypatch, capsys, error: BaseException, code: int, text: str):
    def fail(options: object) -> None:
        raise error

    monkeypatch.setattr(cli, "_plan", fail)
    assert cli.main(["plan"]) == code
    printed = capsys.readouterr().err
    assert text in printed
    assert len(printed.splitlines()) == 1


def test_the_checkpoint_that_is_evaluated_stays_until_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """CK-10: its run trains on and keeps 1."""
    checkpoints = CheckpointManager(tmp_path / "checkpoints", keep_last=1)

    def save(step: int) -> list[str]:
        checkpoints.commit(checkpoints.begin(step), {"step": step})
        return [path.name for path in checkpoints.all()]

    found: list[list[str]] = []

    async def evaluate(config: object) -> None:
        found.append(save(2))

    save_config(load_config([]), tmp_path / "config.yaml")
    save(1)
    monkeypatch.setattr(cli, "_evaluate_run", evaluate)
    assert cli.main(["evaluate", str(tmp_path)]) == 0
    assert [*found, save(3)] == [["step_000001", "step_000002"], ["step_000003"]]


def test_faults_of_the_program_keep_their_traceback(monkeypatch):
    def fail(options: object) -> None:
        raise OSError(errno.ENOENT, "no such file")

    monkeypatch.setattr(cli, "_plan", fail)
    with pytest.raises(OSError, match="no such file"):
        cli.main(["plan"])


def test_stopped_preparation_says_how_it_goes_on(monkeypatch, capsys):
    def stop(options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_prepare", stop)
    assert cli.main(["prepare", "folder"]) == 130
    assert capsys.readouterr().err == "skyrl-nat: stopped. Go on with the same command\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["prepare", "folder", "a=1", "b=2", "--planner", "--seed", "3"],
        ["prepare", "folder", "--planner", "a=1", "--seed", "3", "b=2"],
        ["prepare", "--planner", "--seed", "3", "folder", "a=1", "b=2"],
    ],
)
def test_overrides_may_stand_before_between_and_after_options(monkeypatch, arguments: list[str]):
    seen = []
    monkeypatch.setattr(cli, "_prepare", lambda options: seen.append(options))
    assert cli.main(arguments) == 0
    assert (seen[0].overrides, seen[0].planner, seen[0].seed) == (["a=1", "b=2"], True, 3)


@pytest.mark.parametrize("arguments", [["label", "folder", "a=1"], ["prepare", "folder", "--planer", "a=1"]])
def test_what_no_command_takes_is_refused(capsys, arguments: list[str]):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert "unrecognized arguments" in capsys.readouterr().err

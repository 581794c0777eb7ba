"""What leaves the program when a command fails: one sentence and an exit code."""

import errno

import pytest

from skyrl_nat import cli
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

    monkeypatch.setattr(cli, "_train", fail)
    assert cli.main(["train"]) == code
    printed = capsys.readouterr().err
    assert text in printed
    assert len(printed.splitlines()) == 1


def test_faults_of_the_program_keep_their_traceback(monkeypatch):
    def fail(options: object) -> None:
        raise OSError(errno.ENOENT, "no such file")

    monkeypatch.setattr(cli, "_train", fail)
    with pytest.raises(OSError, match="no such file"):
        cli.main(["train"])


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

"""What leaves the program when a command fails: one sentence and an exit code."""

import errno

import pytest

from skyrl_nat import cli
from skyrl_nat.data.traces import label_page
from skyrl_nat.data.traces.labels import LabelFile, Mark
from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome, TraceStep
from skyrl_nat.data.traces.store import TraceStore
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


def test_faults_of_the_program_keep_their_traceback(monkeypatch):
    def fail(options: object) -> None:
        raise OSError(errno.ENOENT, "no such file")

    monkeypatch.setattr(cli, "_plan", fail)
    with pytest.raises(OSError, match="no such file"):
        cli.main(["plan"])


def test_label_serves_a_store_with_suggestions_and_the_marks_so_far(monkeypatch, tmp_path):
    store = TraceStore(tmp_path)
    outcomes = {"a": TraceOutcome.success, "b": TraceOutcome.failure, "c": TraceOutcome.success}
    said = TraceStep(kind=StepKind.message, text="done")
    store.append(Trace(trace_id=i, source="hook", request="x", steps=(said,), outcome=o) for i, o in outcomes.items())
    LabelFile(tmp_path / "labels.jsonl").add("c", Mark.bad, by="me")
    seen = {}
    monkeypatch.setattr(
        label_page, "serve_labels", lambda traces, file, **where: seen.update(t=traces, f=file, **where)
    )
    assert cli.main(["label", str(tmp_path), "--port", "0"]) == 0
    assert (seen["f"], seen["host"], seen["port"]) == (tmp_path / "labels.jsonl", "127.0.0.1", 0)
    assert {trace.trace_id: trace.labels.get("suggested_label") for trace in seen["t"]} == {
        "a": True,
        "b": False,
        "c": None,
    }
    assert seen["t"][-1].labels == {"label": False}


def test_label_of_a_folder_that_is_no_store_is_one_sentence(capsys, tmp_path):
    assert cli.main(["label", str(tmp_path / "missing")]) == 2
    assert "A trace store must be a folder" in capsys.readouterr().err


def test_stopped_preparation_says_how_it_goes_on(monkeypatch, capsys):
    def stop(options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_prepare", stop)
    assert cli.main(["prepare", "folder"]) == 130
    assert capsys.readouterr().err == "skyrl-nat: stopped. Go on with the same command\n"

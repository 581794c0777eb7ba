"""What drives a chain, with a stand-in for the run: outcomes, deadlines and new starts."""

import json
import threading
import time
from pathlib import Path

import pytest
from chaos import damage, drive
from chaos.cells import GOES_ON, Cell, Chain
from chaos.drive import ChainRun, Result, complaints_of_end, only

FAKE = Path(__file__).parent / "fake_program.py"
BROKEN = (1, r"it is broken")


@pytest.fixture(autouse=True)
def no_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drive, "task_overrides", lambda work: [])


def play(work: Path, *cells: Cell) -> tuple[list[Result], list[int]]:
    """Return the results and the steps of a run that cells hit."""
    played = ChainRun(Chain(name="chain", cells=cells), work, FAKE)
    record = played.play()
    assert played.complaints == []
    steps = [json.loads(line)["step"] for line in (record / "metrics.jsonl").read_text().splitlines()]
    return played.results, steps


def test_a_run_that_goes_on_and_one_that_ends_are_what_the_cells_expect(tmp_path):
    fine = Cell(fault="fine", phase="train")
    ends = Cell(fault="ends", phase="push", expects=BROKEN)
    results, steps = play(tmp_path, fine, ends, fine)
    assert [result.complaints for result in results] == [[], [], []]
    assert [result.outcome[:12] for result in results] == [GOES_ON, "ended with 1", GOES_ON]
    assert results[1].resumed_s > 0
    assert steps[:16] == list(range(1, 17)), "each cell had its block, and the run was started anew once"


def test_what_is_not_expected_fails_and_the_next_cell_is_tried_all_the_same(tmp_path):
    cells = (
        Cell(fault="hangs", phase="train", deadline_s=1.0),
        Cell(fault="ends", phase="train"),
        Cell(fault="never comes", phase="push"),
        Cell(fault="fine", phase="train", expects=BROKEN),
        Cell(fault="ends with a traceback", phase="push", expects=BROKEN),
        Cell(fault="fine", phase="train"),
    )
    results, _ = play(tmp_path, *cells)
    found = [result.verdict for result in results]
    assert results[0].outcome == "hangs"
    assert "within 1 s" in found[0]
    assert "must go on" in found[1]
    assert "the fault was not made" in found[2]
    assert "must end, it went on" in found[3]
    assert "traceback" in found[4]
    assert found[5] == "ok"


def test_a_checkpoint_is_damaged_while_the_run_is_down_and_that_must_be_said(tmp_path):
    results, _ = play(tmp_path, Cell(fault="ends", phase="train", expects=BROKEN, damage="newest manifest torn"))
    assert results[0].outcome.endswith("step_000002 damaged")
    assert results[0].complaints == ["nobody was told of the damaged checkpoint"]


@pytest.mark.parametrize(
    ("code", "errors", "output", "word"),
    [
        (2, ["skyrl-nat: it is broken"], "", "exit code"),
        (1, [], "", "one line"),
        (1, ["skyrl-nat: it is broken", "skyrl-nat: it is broken"], "", "one line"),
        (1, ["skyrl-nat: something else"], "", "one line"),
        (1, ["skyrl-nat: it is broken"], "Traceback (most recent call last)", "traceback"),
    ],
)
def test_an_end_must_be_the_one_named_error(code: int, errors: list[str], output: str, word: str):
    [complaint] = complaints_of_end(BROKEN, code, errors, output)
    assert word in complaint
    assert complaints_of_end(BROKEN, 1, ["skyrl-nat: it is broken"], "") == []
    assert complaints_of_end((-9, ""), -9, [], "") == []


def test_a_run_that_is_cut_off_ends_at_once_and_no_other_one_starts(tmp_path):
    played = ChainRun(Chain(name="chain", cells=(Cell(fault="hangs", phase="train", deadline_s=600),)), tmp_path, FAKE)
    threading.Timer(1.0, played.cut_off).start()
    started = time.monotonic()
    with pytest.raises(AssertionError):
        played.play()
    assert time.monotonic() - started < 10
    assert drive.processes_of(tmp_path / "chain.faults") == {}
    with pytest.raises(AssertionError, match="cut off"):
        played._start(0)


def test_damages_leave_the_size_or_half_of_the_manifest(tmp_path):
    (tmp_path / "manifest.json").write_text("0123456789")
    (tmp_path / "weights").write_bytes(bytes(200))
    damage.flip_bytes(tmp_path)
    assert (tmp_path / "weights").stat().st_size == 200
    assert (tmp_path / "weights").read_bytes().count(0xFF) == 64
    damage.tear_manifest(tmp_path)
    assert (tmp_path / "manifest.json").read_text() == "01234"


def test_a_chain_of_some_cells_has_blocks_without_gaps():
    cells = tuple(Cell(fault=fault, phase="train") for fault in ("a", "b", "c"))
    some = only(Chain(name="chain", cells=cells), lambda cell: cell.fault != "b")
    assert [cell.fault for cell in some.cells] == ["a", "c"]
    assert some.num_steps == 12

"""Runs as processes; a small program stands for the training."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.evaluation.ablation.running import ENDED, Processes, opened
from skyrl_nat.evaluation.ablation.sweep import make_sweep

TRAIN = """
import pathlib, re, sys
words = dict(word.split("=", 1) for word in sys.argv[1:])
root, name = (words[key].strip('"') for key in ("root_dir", "name"))
folder = pathlib.Path(root, name)
folder.mkdir(exist_ok=True)
with open(folder / "starts", "a") as file:
    file.write(words["seed"])
print("working")
if words.get("x") == "bad" and not (pathlib.Path(root) / "mended").exists():
    print("skyrl-nat: the disk is full\\n\\n", file=sys.stderr)
    sys.exit(4)
"""
SLOW = """
import pathlib, signal, sys, time
def stop(number, frame):
    pathlib.Path(sys.argv[1]).write_text(str(number))
    sys.exit(130)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, stop)
pathlib.Path(sys.argv[1] + ".ready").touch()
time.sleep(60)
"""
SWEEP = make_sweep({"good": ["x=good"], "bad": ["x=bad"], "other": ["x=other"]}, [0, 1], ["y=1"])
NAMES = ["good-seed0", "good-seed1", "bad-seed0", "bad-seed1", "other-seed0", "other-seed1"]


def play(root: Path, sweep=SWEEP, program: str = TRAIN, *, num_at_once: int = 1) -> tuple[list, list[str]]:
    said: list[str] = []
    with opened(root, sweep) as lock:
        processes = Processes(root, lock, said.append, [sys.executable, "-c", program], num_at_once=num_at_once)
        failed = processes.play(sweep.runs(root))
    return failed, said


def test_a_run_that_fails_is_told_and_the_others_go_on_and_what_is_done_is_not_done_again(tmp_path: Path):
    root = tmp_path / "out"
    failed, said = play(root)
    assert [(each.run, each.exit_code, each.last_line) for each in failed] == [
        ("bad-seed0", 4, "skyrl-nat: the disk is full"),
        ("bad-seed1", 4, "skyrl-nat: the disk is full"),
    ]
    assert said[0].startswith("1 of 6: good-seed0 is training, see ")
    assert said[5].startswith("3 of 6: bad-seed0 failed after ")
    assert [json.loads(line)["run"] for line in (root / ENDED).open()] == NAMES
    (root / "mended").touch()
    failed, said = play(root)
    assert failed == [] and said[0] == "1 of 6: good-seed0 was trained before"
    assert [len((root / name / "starts").read_text()) for name in NAMES] == [1, 1, 2, 2, 1, 1]
    assert play(root)[1] == [f"{number} of 6: {name} was trained before" for number, name in enumerate(NAMES, 1)]


def test_a_run_whose_folder_was_removed_is_trained_again(tmp_path: Path):
    sweep = make_sweep({"a": [], "b": ["x=1"]}, [0], [])
    play(tmp_path, sweep)
    (tmp_path / "a-seed0" / "starts").unlink()
    (tmp_path / "a-seed0").rmdir()
    assert play(tmp_path, sweep)[1][0].startswith("1 of 2: a-seed0 is training")
    assert (tmp_path / "a-seed0" / "starts").exists()


def test_a_line_that_was_never_finished_counts_for_nothing(tmp_path: Path):
    sweep = make_sweep({"a": [], "b": ["x=1"]}, [0], [])
    play(tmp_path / "out", sweep)
    whole = (tmp_path / "out" / ENDED).read_bytes()
    (tmp_path / "out" / ENDED).write_bytes(whole[:-20])
    assert [line.split(" ", 4)[4][:11] for line in play(tmp_path / "out", sweep)[1]][:2] == [
        "was trained",
        "is training",
    ]
    assert [json.loads(line)["run"] for line in (tmp_path / "out" / ENDED).open()] == ["a-seed0", "b-seed0"]


def test_another_ablation_in_the_folder_is_refused_with_what_differs(tmp_path: Path):
    root = tmp_path / "out"
    with opened(root, SWEEP):
        pass
    same = make_sweep({"good": ["x=good"], "bad": ["x=bad"], "other": ["x=other"]}, [0], ["y=1"])
    with pytest.raises(ConfigError, match=r"has seeds \[0, 1\] there and \[0\] now. Name another"), opened(root, same):
        pass
    turned = make_sweep({"bad": ["x=bad"], "good": ["x=good"], "other": ["x=other"]}, [0, 1], ["y=1"])
    with pytest.raises(ConfigError, match="has variants"), opened(root, turned):
        pass
    with pytest.raises(ConfigError, match="holds neither"), opened(tmp_path, SWEEP):
        pass
    with opened(root, SWEEP), pytest.raises(ConfigError, match="One ablation at a time"), opened(root, SWEEP):
        pass
    (root / "ablation.json").write_text("[1")
    with pytest.raises(DataError, match=r"ablation.json must be JSON"), opened(root, SWEEP):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_to_the_run_that_is_playing_and_ends_all(tmp_path: Path, number: int):
    told = tmp_path / "told"
    sweep = make_sweep({"a": [f"+x={told}"], "b": ["x=1"]}, [0], [])
    program = SLOW.replace("sys.argv[1]", repr(str(told)))

    def interrupt() -> None:
        while not Path(f"{told}.ready").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "out", sweep, program)
    thread.join()
    assert told.read_text() == str(int(number))
    assert signal.getsignal(number) is before
    assert (tmp_path / "out" / ENDED).read_bytes() == b""
    assert not (tmp_path / "out" / "b-seed0.log").exists()


MEET = """
import os, pathlib, sys, time
words = dict(word.split("=", 1) for word in sys.argv[1:])
root, name = (words[key].strip('"') for key in ("root_dir", "name"))
here = pathlib.Path(root, name)
here.mkdir(exist_ok=True)
(here / "card").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
other = pathlib.Path(root, name[:-1] + "10"[int(name[-1])], "card")
deadline = time.monotonic() + 20
while not other.exists():
    assert time.monotonic() < deadline, "alone"
    time.sleep(0.02)
"""


@pytest.mark.parametrize(("visible", "cards"), [("4,7", {"4", "7"}), ("5", {"5"}), ("", {""})])
def test_runs_beside_each_other_have_a_card_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, cards: set[str]
):
    """Both seeds of a variant, which wait for each other here."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    failed, said = play(tmp_path, SWEEP, MEET, num_at_once=2)
    assert failed == [] and len(said) == 2 * len(NAMES)
    assert all("is training" in line for line in said[:2])
    for first, second in zip(NAMES[::2], NAMES[1::2], strict=True):
        assert {(tmp_path / name / "card").read_text() for name in (first, second)} == cards
    assert sorted(json.loads(line)["run"] for line in (tmp_path / ENDED).open()) == sorted(NAMES)


def test_a_signal_ends_all_runs_that_play(tmp_path: Path):
    program = SLOW.replace("sys.argv[1]", "next(w[5:] for w in sys.argv[1:] if w.startswith('name='))").replace(
        "import pathlib,", f"import os; os.chdir({str(tmp_path)!r})\nimport pathlib,"
    )

    def interrupt() -> None:
        while len(list(tmp_path.glob("*.ready"))) < 3:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "out", SWEEP, program, num_at_once=3)
    thread.join()
    assert len(list(tmp_path.glob("*.ready"))) == 3
    assert (tmp_path / "out" / ENDED).read_bytes() == b""


def test_a_run_that_its_parent_left_is_told_to_stop_and_holds_the_folder_until_then(tmp_path: Path):
    told = tmp_path / "told"
    slow = SLOW.replace("sys.argv[1]", repr(str(told))).replace("sys.exit(130)", "time.sleep(0.5); sys.exit(130)")
    parent = textwrap.dedent(
        f"""
        import pathlib, sys
        from skyrl_nat.evaluation.ablation.running import Processes, opened
        from skyrl_nat.evaluation.ablation.sweep import make_sweep
        root, sweep = pathlib.Path({str(tmp_path / "out")!r}), make_sweep({{"a": [], "b": ["x=1"]}}, [0], [])
        with opened(root, sweep) as lock:
            Processes(root, lock, print, [sys.executable, "-c", {slow!r}]).play(sweep.runs(root))
        """
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.DEVNULL)
    while not Path(f"{told}.ready").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    sweep = make_sweep({"a": [], "b": ["x=1"]}, [0], [])
    with pytest.raises(ConfigError, match="a run that it left"), opened(tmp_path / "out", sweep):
        pass
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            with opened(tmp_path / "out", sweep):
                break
        except ConfigError:
            time.sleep(0.05)
    assert told.read_text() == str(int(signal.SIGTERM))

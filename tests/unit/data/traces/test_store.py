"""Traces on the disk: by day, once each, and never half."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from skyrl_nat.data.traces.record import StepKind, Trace, TraceStep
from skyrl_nat.data.traces.scrub import Scrubber
from skyrl_nat.data.traces.store import TraceStore
from skyrl_nat.errors import DataError

ROOT = Path(__file__).parents[4]
NOW = "2026-11-28T10:00:00+00:00"


def trace(name: str, text: str = "hello", **fields: Any) -> Trace:
    said = TraceStep(kind=StepKind.message, text=text)
    made = Trace(trace_id=name, source="hook", request="r", steps=(said,), started_at=NOW)
    return replace(made, **fields)


def open_store(folder: Path) -> TraceStore:
    return TraceStore(folder, Scrubber({}))


def texts(store: TraceStore) -> dict[str, str]:
    return {found.trace_id: found.steps[0].text for found in store.read().traces}


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_ds_10_only_a_lone_surrogate_is_replaced_and_a_bad_row_never_loses_the_batch(tmp_path: Path):
    odd = {
        "surrogate": "a\ud800b",
        "nul": "a\x00b",
        "right-to-left": "a\u202e\u05d0\u200fb",
        "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f600",
        "accents": "e\u0301 vs \xe9",
        "lines": "a\u2028b\u2029c\x85d\x0be\r\nf",
        "pair": "\ud83d\ude00",
    }
    rows = [trace(name, text) for name, text in odd.items()]
    bad = [trace("nan", metadata={"x": float("nan")}), trace("no text", steps=(None,)), trace("", "without an id")]
    store = open_store(tmp_path)
    written = store.append([rows[0], *bad, *rows[1:]])
    assert (written.num_traces, written.num_surrogates, len(written.faults)) == (7, 1, 3)
    assert texts(store) == odd | {"surrogate": "a\ufffdb", "pair": "\U0001f600"}


def test_surrogates_are_counted_in_every_field(tmp_path: Path):
    store = open_store(tmp_path)
    written = store.append([trace("t", request="\udc00", files={"\ud800.py": "\ud800\ud800"}, labels={"l": "\udfff"})])
    assert written.num_surrogates == 5
    found = store.read().traces[0]
    assert (found.request, found.files, found.labels) == ("\ufffd", {"\ufffd.py": "\ufffd\ufffd"}, {"l": "\ufffd"})


def test_traces_lie_in_the_folder_of_the_day_on_which_they_began_and_come_back_by_days(tmp_path: Path):
    store = open_store(tmp_path)
    days = {"a": "2026-11-26T23:59:59+00:00", "b": "2026-11-27T00:30:00+02:00", "c": "2026-11-27T12:00:00", "d": NOW}
    store.append([trace(name, started_at=started) for name, started in days.items()])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2026-11-26", "2026-11-27", "2026-11-28"]

    def names(*days: date | None) -> list[str]:
        return [found.trace_id for found in store.read(*days).traces]

    assert names() == ["a", "b", "c", "d"]
    assert names(date(2026, 11, 27)) == ["c", "d"]
    assert names(None, date(2026, 11, 27)) == ["a", "b", "c"]
    assert names(date(2026, 11, 27), date(2026, 11, 27)) == ["c"]


@pytest.mark.parametrize("started", ["", "yesterday", "../../../tmp"])
def test_a_trace_of_an_unknown_beginning_lies_in_the_folder_of_today(tmp_path: Path, started: str):
    open_store(tmp_path / "s").append([trace("t", started_at=started)])
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", next((tmp_path / "s").iterdir()).name)


def test_of_two_traces_with_one_id_the_one_written_last_is_read_and_the_other_counted(tmp_path: Path):
    first, second = open_store(tmp_path), open_store(tmp_path)
    first.append([trace("t", "old"), trace("u")])
    first.append([trace("t", "newer")])
    second.append([trace("t", "newest")])
    found = first.read()
    assert [(t.trace_id, t.steps[0].text) for t in found.traces] == [("u", "hello"), ("t", "newest")]
    assert found.left_out == {"trace that came again": 2}


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_torn_last_line_is_left_out_and_said(tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture):
    store = open_store(tmp_path)
    store.append([trace("a"), trace("b")])
    path = next(tmp_path.glob("*/*.jsonl"))
    path.write_bytes(path.read_bytes()[: -1 - cut])
    found = store.read()
    assert [t.trace_id for t in found.traces] == ["a"]
    assert found.left_out == {"torn last line": 1}
    assert f"1 x torn last line (first: {path}, line 2)" in caplog.text


def test_broken_and_foreign_lines_are_counted_and_lose_no_other(tmp_path: Path):
    store = open_store(tmp_path)
    store.append([trace("a")])
    path = next(tmp_path.glob("*/*.jsonl"))
    line = path.read_text()
    older = json.dumps({key: value for key, value in json.loads(line).items() if key != "labels"})
    path.write_text("{nonsense\n" + older + "\n\n" + line.replace('"a"', '"b"') + '{"reward": NaN}\n' + line)
    found = store.read()
    assert [t.trace_id for t in found.traces] == ["b", "a"]
    assert found.left_out == {"line that is no JSON": 2, "line that is no trace": 1}
    assert "line 2: the trace must have exactly" in found.first_places["line that is no trace"]


def test_several_processes_write_at_once_and_no_row_is_lost_or_mixed(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; from test_store import open_store, trace\n"
        "store = open_store(Path(sys.argv[1]))\n"
        "for n in range(50): store.append([trace(f'{sys.argv[2]}-{n}', 'x' * 5000)])"
    )
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"}
    command = [sys.executable, "-c", code, str(tmp_path)]
    writers = [subprocess.Popen([*command, str(number)], env=environment) for number in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    found = open_store(tmp_path).read()
    assert {t.trace_id for t in found.traces} == {f"{number}-{n}" for number in range(3) for n in range(50)}
    assert found.left_out == {}


def test_forked_writers_have_files_of_their_own(tmp_path: Path):
    store = open_store(tmp_path)
    store.append([trace("parent")])
    child = os.fork()
    if child == 0:
        store.append([trace("child")])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(tmp_path.glob("*/*.jsonl"))) == 2
    assert set(texts(store)) == {"parent", "child"}


def test_a_killed_writer_loses_at_most_the_batch_it_was_at(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; from test_store import open_store, trace\n"
        "store = open_store(Path(sys.argv[1]))\n"
        "for n in range(100000):\n"
        "    store.append([trace(str(n), 'x' * 50000)])\n"
        "    print(n, flush=True)"
    )
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"}
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=environment, stdout=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.readline()
    time.sleep(0.3)
    writer.send_signal(signal.SIGKILL)
    told = 1 + writer.stdout.read().count(b"\n")
    writer.wait(10)
    names = set(texts(open_store(tmp_path)))
    assert {str(n) for n in range(told)} <= names
    assert len(names) <= told + 1


def test_a_full_disk_takes_the_begun_batch_back_and_the_store_goes_on_afterwards(tmp_path: Path):
    code = (
        "import resource, sys; from pathlib import Path; from test_store import open_store, trace\n"
        "store = open_store(Path(sys.argv[1]))\n"
        "store.append([trace('before')])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))\n"
        "try: store.append([trace('big', 'x' * 100_000)])\n"
        "except OSError as error: print('refused', error.errno)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "store.append([trace('after')])"
    )
    done = run_python(code, str(tmp_path))
    assert (done.stdout, done.returncode) == ("refused 27\n", 0), done.stderr
    found = open_store(tmp_path).read()
    assert [t.trace_id for t in found.traces] == ["before", "after"]
    assert found.left_out == {}


def test_secrets_are_out_of_the_file_before_it_is_written(tmp_path: Path):
    key = "sk-" + "a1" * 24
    written = open_store(tmp_path).append([trace("t", f"use {key}", metadata={"header": f"Bearer {key}"})])
    assert written.secrets == {"openai-key": 2}
    assert key not in next(tmp_path.glob("*/*.jsonl")).read_text()


def test_a_missing_folder_is_said_and_foreign_files_are_counted(tmp_path: Path):
    with pytest.raises(DataError, match="must be a folder"):
        open_store(tmp_path / "none").read()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/traces-1.jsonl").write_text("{}\n")
    assert open_store(tmp_path).read().left_out == {"file outside a folder YYYY-MM-DD": 1}

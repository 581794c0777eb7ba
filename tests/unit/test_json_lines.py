"""Lines are there whole or not at all; what is written is JSON as the standard has it."""

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skyrl_nat.json_lines import append_lines, encode_line, mend_lines, open_lines, replace_lines, whole_lines
from skyrl_nat.strict_json import parse_json

NAN, INFINITY = float("nan"), float("inf")
WHOLE = b'{"a": 1}\n{"b": "t\xc3\xa4xt"}\n'


def mended(path: Path, data: bytes) -> tuple[list[bytes], bytes]:
    """Return the lines that are read of a file, and what it is once the next line was written."""
    path.write_bytes(data)
    with open_lines(path) as file:
        lines = mend_lines(file, path)
        append_lines(file, encode_line({"c": 3}))
    return lines, path.read_bytes()


def test_torn_anywhere_in_its_last_line_a_file_keeps_every_line_before_it_and_takes_the_next(tmp_path: Path):
    for end in range(len(b'{"a": 1}\n'), len(WHOLE) + 1):
        lines, after = mended(tmp_path / "l.jsonl", WHOLE[:end])
        is_whole = end >= len(WHOLE) - 1  # only the line's end may be missing
        assert lines == WHOLE.split(b"\n")[: 2 if is_whole else 1]
        assert after == b"".join(line + b"\n" for line in [*lines, b'{"c": 3}'])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b'{"a": 1}', [b'{"a": 1}']),
        (b"\xff\xfe\x00", []),
        (b'{"a": 1}\n\xff\xfe', [b'{"a": 1}']),
        (b"\xff\xfe\n", [b"\xff\xfe"]),
        (b"[" * 100_000, []),
    ],
    ids=["empty", "an empty line", "no end", "bytes only", "bytes at the end", "bytes before", "nested"],
)
def test_files_that_are_empty_or_hold_other_bytes(tmp_path: Path, data: bytes, expected: list[bytes]):
    """Lines before the last are the caller's to judge, only the last one may be torn."""
    lines, after = mended(tmp_path / "l.jsonl", data)
    assert lines == expected == whole_lines(data, tmp_path)
    assert after == b"".join(line + b"\n" for line in [*expected, b'{"c": 3}'])


def test_folders_are_made_and_lines_replaced(tmp_path: Path):
    path = tmp_path / "new" / "l.jsonl"
    with open_lines(path) as file:
        append_lines(file, WHOLE, is_synced=True)
    replace_lines(path, [b'{"b": 2}'])
    assert path.read_bytes() == b'{"b": 2}\n'
    assert [entry.name for entry in path.parent.iterdir()] == ["l.jsonl"]


def test_numbers_that_are_not_finite_become_null_with_a_reason():
    """LG-05: readers that know no NaN can read every line."""
    record = {"step": 1, "loss": NAN, "up": INFINITY, "in": {"x": [1.0, -INFINITY]}, "ok": 0.5}
    assert parse_json(encode_line(record)) == {
        "step": 1,
        "loss": None,
        "up": None,
        "in": {"x": [1.0, None]},
        "ok": 0.5,
        "not_finite": {"loss": "nan", "up": "inf", "in.x.1": "-inf"},
    }
    assert encode_line({"a": 1.5}) == b'{"a": 1.5}\n'


def test_a_disk_that_takes_a_part_of_a_line_keeps_none_of_it(tmp_path: Path):
    """LG-02: a limit of the file's size stands in for a full disk; the error is the caller's."""
    path = tmp_path / "l.jsonl"
    code = f"""
import resource, signal
from pathlib import Path
from skyrl_nat.json_lines import append_lines, open_lines
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, {resource.RLIM_INFINITY}))
with open_lines(Path({str(path)!r})) as file:
    append_lines(file, b'{{"a": 1}}\\n')
    try:
        append_lines(file, b'"' + b"x" * 200 + b'"\\n')
    except OSError as error:
        print(error.errno)
    append_lines(file, b'{{"b": 2}}\\n')
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "27\n"
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"a": 1}, {"b": 2}]


def test_killed_at_any_moment_a_writer_leaves_lines_that_can_be_read(tmp_path: Path):
    path = tmp_path / "l.jsonl"
    code = f"""
from pathlib import Path
from skyrl_nat.json_lines import append_lines, encode_line, open_lines
with open_lines(Path({str(path)!r})) as file:
    number = 0
    while True:
        append_lines(file, encode_line({{"n": number, "text": "x" * 5000}}))
        number += 1
        if number == 20: print("go", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "go\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    with open_lines(path) as file:
        numbers = [json.loads(line)["n"] for line in mend_lines(file, path)]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 20

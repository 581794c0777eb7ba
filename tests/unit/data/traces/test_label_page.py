"""The page for labelling: what it serves, saves and refuses."""

import asyncio
import json
import math
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from skyrl_nat.data.traces.label_page import PAGE, make_app, serve_labels
from skyrl_nat.data.traces.labels import LabelFile, Mark
from skyrl_nat.data.traces.record import StepKind, Trace, TraceStep
from skyrl_nat.errors import ConfigError, DataError

MARKS = "/api/marks"


def trace(name: str, **fields) -> Trace:
    steps = (
        TraceStep(kind=StepKind.message, role="user", text="Do it"),
        TraceStep(kind=StepKind.tool, tool="bash", arguments={"command": "ls", "n": [1]}, text="a\n", is_error=True),
        TraceStep(kind=StepKind.message, text="<script>bad()</script>", seconds=math.nan),
    )
    return Trace(**{"trace_id": name, "source": "chat", "request": f"Do\n  {name}", "steps": steps} | fields)


@asynccontextmanager
async def client(labels: Path, *traces: Trace) -> AsyncIterator[TestClient]:
    app = make_app(traces or (trace("a"), trace("b")), LabelFile(labels), by="mira")
    async with TestClient(TestServer(app)) as opened:
        yield opened


async def read(page: TestClient, path: str) -> Any:
    response = await page.get(path)
    assert response.status == 200
    return json.loads(await response.text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    return tmp_path / "labels.jsonl"


def run(coroutine: Any) -> None:
    asyncio.run(coroutine)


def test_the_list_shows_what_is_labelled(labels: Path) -> None:
    LabelFile(labels).add("b", Mark.bad, by="somebody else")

    async def look() -> None:
        async with client(labels) as page:
            assert await read(page, "/api/traces") == {
                "by": "mira",
                "traces": [
                    {"trace_id": "a", "source": "chat", "outcome": "unknown", "request": "Do a", "mark": None},
                    {"trace_id": "b", "source": "chat", "outcome": "unknown", "request": "Do b", "mark": "bad"},
                ],
            }

    run(look())


def test_a_trace_is_shown_with_steps_suggestion_and_parts_as_strict_json(labels: Path) -> None:
    said = {"suggested_label": False, "suggested_confidence": 0.75, "suggested_reason": "why"}
    odd = trace("a", reward=math.nan, seconds=math.inf, labels={**said, "parts": {"syntax": 0.5, "odd": math.nan}})

    async def look() -> None:
        async with client(labels, odd) as page:
            shown = await read(page, "/api/traces/0")
            assert shown["suggestion"] == {"is_good": False, "confidence": 0.75, "reason": "why"}
            assert shown["parts"] == {"syntax": 0.5}
            assert shown["facts"] == {"source": "chat", "outcome": "unknown", "trace": "a"}
            assert [step["kind"] for step in shown["steps"]] == ["message", "tool", "message"]
            assert shown["steps"][1]["arguments"] == "command: ls\nn: [\n  1\n]"
            assert shown["steps"][2]["seconds"] is None
            assert (await page.get("/api/traces/1")).status == 404

    run(look())


def test_marks_are_saved_at_once_and_undone_one_by_one(labels: Path) -> None:
    async def label() -> None:
        async with client(labels) as page:
            for mark in ("good", "bad"):
                answer = await (await page.post(MARKS, json={"trace_id": "a", "mark": mark})).json()
                assert (answer["mark"]["mark"], answer["mark"]["by"]) == (mark, "mira")
                assert LabelFile(labels).labels() == {"a": mark == "good"}
            standing = []
            for _ in range(2):
                answer = await (await page.post(MARKS, json={"trace_id": "a", "mark": "undo"})).json()
                standing.append(answer["mark"] and answer["mark"]["mark"])
            assert standing == ["good", None]
            refused = await page.post(MARKS, json={"trace_id": "a", "mark": "undo"})
            assert (refused.status, (await refused.json())["error"].startswith("The mark was not saved")) == (409, True)
        assert LabelFile(labels).labels() == {}
        assert len(LabelFile(labels).events()) == 4

    run(label())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"trace_id": "a", "mark": "great"}, 400),
        ({"trace_id": "a"}, 400),
        ([], 400),
        ("a", 400),
        ({"trace_id": "a", "mark": ["good"]}, 400),
        ({"trace_id": ["a"], "mark": "good"}, 404),
        ({"trace_id": "nobody", "mark": "good"}, 404),
        ({"trace_id": "a", "mark": "good", "pad": "x" * 70_000}, 413),
    ],
)
def test_what_is_no_mark_is_refused_and_not_written(labels: Path, body: Any, status: int) -> None:
    async def send() -> None:
        async with client(labels) as page:
            assert (await page.post(MARKS, json=body)).status == status

    run(send())
    assert not labels.exists()


def test_other_pages_of_the_browser_can_neither_read_nor_label(labels: Path) -> None:
    good = json.dumps({"trace_id": "a", "mark": "good"})

    async def attack() -> None:
        async with client(labels) as page:
            json_type = {"Content-Type": "application/json"}
            sent = [
                await page.post(MARKS, data=good, headers={"Content-Type": "text/plain"}),
                await page.post(MARKS, data=good, headers=json_type | {"Origin": "http://evil.example"}),
                await page.post(MARKS, data=good, headers=json_type | {"Origin": "null"}),
                await page.get("/api/traces", headers={"Host": "evil.example"}),
            ]
            assert [response.status for response in sent] == [403] * 4
            own = f"http://{page.host}:{page.port}"
            assert (await page.post(MARKS, data=good, headers=json_type | {"Origin": own})).status == 200

    run(attack())
    assert len(LabelFile(labels).events()) == 1


def test_the_page_allows_its_own_script_only_and_loads_nothing_else(labels: Path) -> None:
    async def look() -> None:
        async with client(labels) as page:
            response = await page.get("/")
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert policy.count("'sha256-") == 2

    run(look())
    html = PAGE.read_text(encoding="utf-8")
    assert not re.findall(r"innerHTML|insertAdjacentHTML|document\.write|https?://| style=", html)


def test_no_traces_or_an_id_twice_are_refused(labels: Path) -> None:
    with pytest.raises(DataError, match="got none"):
        make_app([], LabelFile(labels), by="mira")
    with pytest.raises(DataError, match=r"1 ids twice \(a\)"):
        make_app([trace("a"), trace("a")], LabelFile(labels), by="mira")


def test_a_file_of_labels_that_cannot_be_read_is_refused_at_the_start(labels: Path) -> None:
    labels.write_text("nonsense\n")
    with pytest.raises(DataError, match="line 1 must be a mark"):
        serve_labels([trace("a")], labels)


def test_an_address_that_is_taken_is_a_sentence(labels: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="an address to listen on"):
        serve_labels([trace("a")], labels, port=taken.getsockname()[1])


@pytest.fixture
def address(labels: Path) -> Iterator[str]:
    """Give the address of a page that runs as the command runs it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = (
        "import sys; from pathlib import Path; from skyrl_nat.data.traces.record import *\n"
        "from skyrl_nat.data.traces.label_page import serve_labels\n"
        "steps = (TraceStep(kind=StepKind.message, text='said <b>bold</b>'),)\n"
        "traces = [Trace(trace_id=n, source='chat', request='Do ' + n, steps=steps) for n in 'ab']\n"
        "serve_labels(traces, Path(sys.argv[1]), port=int(sys.argv[2]), by='mira')"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(labels), str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(150):
            try:
                urllib.request.urlopen(url, timeout=5).close()
                break
            except urllib.error.URLError:
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_the_command_serves_the_page_and_saves_a_mark(address: str, labels: Path) -> None:
    with urllib.request.urlopen(address, timeout=10) as response:
        assert response.read() == PAGE.read_bytes()
    body = json.dumps({"trace_id": "b", "mark": "good"}).encode()
    request = urllib.request.Request(address + MARKS, data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        assert json.load(response)["mark"]["by"] == "mira"
    assert LabelFile(labels).labels() == {"b": True}

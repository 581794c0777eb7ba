"""The package's MCP start script, run for real: a server of its own, and a client that never saw the package.

Each phase has a limit and a name, so that a server which is silent, dies or talks nonsense says so.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from forked_worker import Emit, run_worker
from installing import PROGRAM_FOLDER, install
from nat_mcp import call_tool
from values import describe

LOG_CHARS = 400


def run_script(arguments: dict, folder: str, deadline: float) -> dict:
    """Return `{"reports": [...], "end": ...}`; `end` is `done`, or what went wrong.

    Args:
        arguments: `script` (path), `calls` (`{"id", "tool", "input"}`), `listen_s` (seconds until it must listen),
            `answer_s` (seconds for one answer).
        folder: The work folder that holds the package.
        deadline: Monotonic time by which the answer must be there.
    """
    try:
        port = _free_port()
    except OSError as error:
        return {"reports": [], "end": f"no loopback network here: {error}"}
    log = Path(folder) / "mcp.log"
    install(Path(folder), Path(folder))
    environment = {**os.environ, "MCP_PORT": str(port), "PYTHONPATH": f"{folder}:{folder}/src:{PROGRAM_FOLDER}"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment.get('PATH', '')}"
    with log.open("wb") as output:
        server = subprocess.Popen(
            ["bash", arguments["script"]],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    listening = _wait_until_listening(server, port, min(deadline, time.monotonic() + arguments["listen_s"]))
    reports: list[dict] = []
    end = listening
    if not listening:
        reports, status = run_worker(lambda emit: asyncio.run(_talk(emit, port, arguments)), deadline - 1.0)
        problems = [report["problem"] for report in reports if "problem" in report]
        end = problems[0] if problems else {"done": "done", "timeout": "no answer in time"}.get(status, status)
    if end != "done" and server.poll() is not None:
        end += f"; the server ended with code {server.returncode}"
    tail = log.read_text(encoding="utf-8", errors="replace")[-LOG_CHARS:]
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    return {"reports": reports, "end": end, "log": tail}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_until_listening(server: subprocess.Popen, port: int, until: float) -> str:
    """Return what went wrong; empty once the port answers."""
    while time.monotonic() < until:
        if server.poll() is not None:
            return "the script ended before anything listened"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return ""
        except OSError:
            time.sleep(0.05)
    return "nothing listens on MCP_PORT in time"


async def _talk(emit: Emit, port: int, arguments: dict) -> None:
    """Initialize, list, call; a problem is named by the phase that it came up in."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    phase = "connect"
    try:
        async with (
            streamablehttp_client(f"http://127.0.0.1:{port}/mcp") as (reading, writing, _),
            ClientSession(reading, writing) as client,
        ):
            phase = "initialize"
            await asyncio.wait_for(client.initialize(), arguments["answer_s"])
            phase = "list of tools"
            listed = await asyncio.wait_for(client.list_tools(), arguments["answer_s"])
            emit({"tools": [tool.name for tool in listed.tools]})
            for item in arguments["calls"]:
                phase = f"call of {item['tool']}"
                answer = call_tool(client, item["tool"], item)
                emit({"id": item["id"], **await asyncio.wait_for(answer, arguments["answer_s"])})
    except BaseException as error:  # noqa: BLE001 - whatever the server does is a finding
        emit({"problem": f"{phase}: {_reason(error)}"})


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, (TimeoutError, asyncio.CancelledError)):
        return "no answer in time"
    return describe(error)

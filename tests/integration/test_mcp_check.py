"""The MCP check: servers that are silent, die or talk nonsense, and arguments that are no Python names."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.sandbox.base import Sandbox, SandboxJob
from skyrl_nat.sandbox.launch import INSIDE_FOLDER, find_python
from skyrl_nat.sandbox.profiles import open_sandbox

pytestmark = pytest.mark.timeout(180)
LIMIT_S = 3.0
LISTEN = """import os, socket, time
server = socket.create_server(("127.0.0.1", int(os.environ["MCP_PORT"])))
"""
SERVERS = {
    "never answers": (LISTEN + "time.sleep(300)\n", "initialize: no answer in time"),
    "exits after the handshake": (
        LISTEN + "for _ in range(2):\n    server.accept()[0].close()\nraise SystemExit(7)\n",
        "initialize:",
    ),
    "talks nonsense": (
        LISTEN
        + "while True:\n    peer, _ = server.accept()\n    peer.recv(65536)\n"
        + "    peer.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 11\\r\\n\\r\\nstarting...')\n"
        + "    peer.close()\n",
        "initialize:",
    ),
    "answers after 30 s": (
        LISTEN + "while True:\n    peer, _ = server.accept()\n    peer.recv(65536)\n    time.sleep(30)\n",
        "initialize: no answer in time",
    ),
    "never listens": ("import time\ntime.sleep(300)\n", "nothing listens on MCP_PORT in time"),
    "is not there": (
        "raise SystemExit(127)\n",
        "the script ended before anything listened; the server ended with code 127",
    ),
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    opened = open_sandbox(SandboxConfig())
    opened.start()
    yield opened
    opened.close()


def check(sandbox: Sandbox, server: str) -> tuple[dict[str, Any], float]:
    files = {"run.sh": "exec python server.py\n", "server.py": server}
    call = {"id": "c", "tool": "t", "input": {}}
    arguments = {"script": "run.sh", "calls": [call], "listen_s": LIMIT_S, "answer_s": LIMIT_S}
    started = time.monotonic()
    result = sandbox.run(SandboxJob(kind="nat_mcp_script", files=files, arguments=arguments, timeout_s=20.0))
    assert result.status == "done", result
    return result.output, time.monotonic() - started


@pytest.mark.parametrize("name", SERVERS)
def test_each_bad_server_ends_in_time_with_its_own_reason_nt_08(sandbox: Sandbox, name: str) -> None:
    server, reason = SERVERS[name]
    output, wall_s = check(sandbox, server)
    assert output["end"].startswith(reason), output
    assert wall_s < 4 * LIMIT_S
    assert not [report for report in output["reports"] if "text" in report]


def test_next_check_works_and_no_server_is_left_nt_08(sandbox: Sandbox) -> None:
    check(sandbox, SERVERS["never answers"][0])
    code = "import os\nemit({'pids': [p for p in os.listdir('/proc') if p.isdigit()]})\n"
    left = sandbox.run(SandboxJob(kind="python", files={"main.py": code})).output["reports"]
    assert len(left[0].get("pids", [])) <= 2
    good = """import os
from mcp.server.fastmcp import FastMCP
server = FastMCP("x", port=int(os.environ["MCP_PORT"]))
@server.tool()
def t() -> str:
    return "fine"
server.run("streamable-http")
"""
    files = {"run.sh": "exec python server.py\n", "server.py": good}
    arguments = {
        "script": "run.sh",
        "calls": [{"id": "c", "tool": "t", "input": {}}],
        "listen_s": 30.0,
        "answer_s": 10.0,
    }
    output = sandbox.run(SandboxJob(kind="nat_mcp_script", files=files, arguments=arguments, timeout_s=60.0)).output
    assert output["end"] == "done", output
    assert {"id": "c", "text": "fine"} in output["reports"]


ECHO = '''import asyncio, json, sys
sys.path.append(sys.argv[1])
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from nat_mcp import call_tool

SERVER = """
import asyncio, json
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import TextContent, Tool

server = Server("echo")
NAMES = ["from", "cik-A", "class", "$ref-like"]

@server.list_tools()
async def list_tools():
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in NAMES}, "required": NAMES}
    return [Tool(name="echo", inputSchema=schema)]

@server.call_tool()
async def call_tool(name, arguments):
    return [TextContent(type="text", text=json.dumps(arguments))]

async def main():
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())

asyncio.run(main())
"""

async def main():
    parameters = StdioServerParameters(command=sys.executable, args=["-c", SERVER])
    async with stdio_client(parameters) as (reading, writing), ClientSession(reading, writing) as client:
        await client.initialize()
        print(json.dumps(await call_tool(client, "echo", {"input": json.loads(sys.argv[2])})))

asyncio.run(main())
'''


def test_arguments_that_are_no_python_names_reach_the_server_as_they_are_nt_07(tmp_path: Path) -> None:
    values = {"from": "a", "cik-A": "b", "class": "c", "$ref-like": "d"}
    script = tmp_path / "echo.py"
    script.write_text(ECHO)
    command = [str(find_python(SandboxConfig())), str(script), str(INSIDE_FOLDER), json.dumps(values)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(json.loads(done.stdout.splitlines()[-1])["text"]) == values

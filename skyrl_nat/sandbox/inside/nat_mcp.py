"""The MCP front end of the package under test, served and called inside the job by NAT's own server code."""

import time
from datetime import timedelta
from typing import Any

from forked_worker import Emit
from values import error_report

CALL_TIMEOUT_S = 5.0


async def check_mcp(emit: Emit, calls: list[dict], package: Any) -> None:
    """Serve the package, list its tools and call them; every answer is reported as text."""
    from mcp.shared.memory import create_connected_server_and_client_session as connect
    from nat.plugins.mcp.server.front_end_config import MCPFrontEndConfig
    from nat.plugins.mcp.server.front_end_plugin_worker import MCPFrontEndPluginWorker

    started = time.monotonic()
    if not isinstance(package.config.general.front_end, MCPFrontEndConfig):
        package.config.general.front_end = MCPFrontEndConfig()
    worker = MCPFrontEndPluginWorker(package.config)
    server = await worker.create_mcp_server()
    await worker.add_routes(server, package.builder)
    timeout = timedelta(seconds=CALL_TIMEOUT_S)
    async with connect(server._mcp_server, read_timeout_seconds=timeout) as client:
        listed = (await client.list_tools()).tools
        emit(
            {
                "stage": "mcp",
                "ok": True,
                "error": "",
                "tools": [{"name": tool.name, "inputs": tool.inputSchema} for tool in listed],
                "seconds": time.monotonic() - started,
            }
        )
        for item in calls:
            emit({"stage": "mcp_call", "id": item["id"], **await call_tool(client, item["tool"], item)})


async def call_tool(client: Any, name: str, item: dict) -> dict:
    """Return the text that a tool answered, or its error."""
    try:
        result = await client.call_tool(name, item["input"])
    except Exception as error:  # noqa: BLE001 - whatever the server does is an answer
        return error_report(error)
    text = "".join(part.text for part in result.content if part.type == "text")
    return {"error": text[:400], "raised": ["ToolError"]} if result.isError else {"text": text[:20_000]}

"""The start script for real: run cold in the sandbox, spoken to over MCP by a client that never saw the package."""

from typing import Any

import yaml

from skyrl_nat.environments.nat_agent.cases import Cases
from skyrl_nat.environments.nat_agent.compare import is_same_text, share_above_constant
from skyrl_nat.environments.nat_agent.payload import AgentSpec
from skyrl_nat.environments.nat_agent.static_checks import StaticReport, load_yaml
from skyrl_nat.sandbox.base import Sandbox, SandboxJob

TIMEOUT_S = 90.0
LISTEN_TIMEOUT_S = 60.0
"""A cold NAT process needs five seconds on an idle core."""
ANSWER_TIMEOUT_S = 10.0


def check_script(sandbox: Sandbox, spec: AgentSpec, static: StaticReport, cases: Cases) -> tuple[float, list[str]]:
    """Return the share of right answers over MCP, and what was wrong.

    Raises:
        SandboxError: The sandbox failed.
    """
    arguments = {
        "script": static.script,
        "calls": mcp_calls(spec, cases),
        "listen_s": LISTEN_TIMEOUT_S,
        "answer_s": ANSWER_TIMEOUT_S,
    }
    try:
        files = {**static.files, static.config: _without_llms(static.files[static.config])}
    except ValueError as error:  # a number too long to be written again
        return 0.0, [f"mcp script: the workflow file cannot be written again: {error}"[:300]]
    job = SandboxJob(kind="nat_mcp_script", files=files, arguments=arguments, timeout_s=TIMEOUT_S)
    output = sandbox.run(job).output
    if str(output.get("end")).startswith("no loopback"):
        return 1.0, []  # this profile of the sandbox has no network at all; the warm server has answered
    reports = {str(r.get("id")): r for r in output.get("reports", []) if isinstance(r, dict)}
    is_right = [
        is_same_text(vector.output, reports.get(f"mcp/{index}", {}).get("text"), spec.tool(vector.tool).compare)
        for index, vector in enumerate(cases.mcp)
    ]
    share = share_above_constant(is_right, [vector.output for vector in cases.mcp])
    if all(is_right):
        return share, []
    return share, [f"mcp script: {sum(is_right)} of {len(is_right)} calls right; {str(output.get('end'))[:300]}"]


def mcp_calls(spec: AgentSpec, cases: Cases) -> list[dict[str, Any]]:
    """Return the calls to be made over MCP."""
    return [
        {"id": f"mcp/{index}", "tool": vector.tool, "input": named_input(spec, vector.tool, vector.input)}
        for index, vector in enumerate(cases.mcp)
    ]


def named_input(spec: AgentSpec, tool: str, value: Any) -> dict[str, Any]:
    """Return an input as MCP wants it: an object, for tools of one argument too."""
    names = list(spec.tool(tool).arguments)
    return value if len(names) > 1 else {names[0]: value}


def _without_llms(text: str) -> str:
    """Return the workflow file with every LLM scripted: a server must not need an API key to be checked."""
    config = load_yaml(text)
    if isinstance(config, dict) and isinstance(config.get("llms"), dict):
        config["llms"] = {name: {"_type": "scripted"} for name in config["llms"]}
    return yaml.safe_dump(config, sort_keys=False)

"""The questions of one judgement as they go into the sandbox: inputs only, and names that say nothing.

What a call is asked for (a right answer, a refusal, a canary) must not be told by its name or its place: names are
numbers, and all calls are shuffled. The first call of each function comes again at the end.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skyrl_nat.environments.nat_agent.cases import Cases
from skyrl_nat.environments.nat_agent.mcp_setup import mcp_calls
from skyrl_nat.environments.nat_agent.payload import AgentSpec
from skyrl_nat.environments.nat_agent.static_checks import StaticReport


@dataclass(frozen=True, slots=True)
class Questions:
    """A job's arguments, and what its names mean."""

    arguments: dict[str, Any]
    meanings: Mapping[str, str]
    """Name in the job -> `call/3`, `error/0`, `canary/1`, `e2e/2`, `e2e_error/0`, `mcp/4`."""

    def understood(self, output: Mapping[str, Any]) -> dict[str, Any]:
        """Return a job's output with the names' meanings; answers to what was not asked are left out."""
        items = output.get("stages")
        stages: list[Any] = []
        for item in items if isinstance(items, list) else []:
            if not isinstance(item, dict) or "id" not in item:
                stages.append(item)
            elif str(item["id"]) in self.meanings:
                stages.append({**item, "id": self.meanings[str(item["id"])]})
        return {**output, "stages": stages}


def ask(spec: AgentSpec, static: StaticReport, cases: Cases, rng: random.Random) -> Questions:
    """Return the questions of a judgement.

    Args:
        spec: The visible half.
        static: What the parent knows of the package.
        cases: What is to be asked.
        rng: Shuffles.
    """
    meanings: dict[str, str] = {}

    def named(meaning: str, item: dict[str, Any]) -> dict[str, Any]:
        name = str(len(meanings))
        meanings[name] = meaning
        return {"id": name, **item}

    groups = (("call", cases.calls), ("error", cases.errors), ("canary", cases.canaries))
    calls = [(f"{kind}/{i}", {"tool": v.tool, "input": v.input}) for kind, vs in groups for i, v in enumerate(vs)]
    repeated = {f"call/{i}" for i in range(len(cases.calls) - cases.num_repeated, len(cases.calls))}
    last = [call for call in calls if call[0] in repeated]
    calls = [call for call in calls if call[0] not in repeated]
    runs = [(f"e2e/{i}", {"input": run.input, "script": list(run.script)}) for i, run in enumerate(cases.e2e)]
    runs += [(f"e2e_error/{i}", {"input": run.input, "script": []}) for i, run in enumerate(cases.e2e_errors)]
    rng.shuffle(calls)
    rng.shuffle(runs)
    served = [(call.pop("id"), call) for call in mcp_calls(spec, cases)]
    arguments = job_arguments(spec, static) | {
        "calls": [named(*call) for call in [*calls, *last]],
        "e2e": [named(*run) for run in runs],
        "mcp": [named(*call) for call in served] if spec.integration.mcp else None,
    }
    return Questions(arguments, meanings)


def job_arguments(spec: AgentSpec, static: StaticReport) -> dict[str, Any]:
    """Return what every `nat_validate` job needs to find its way in the files."""
    return {
        "source_root": static.source_root,
        "module": static.module,
        "config": static.config if static.yaml_share > 0 else "",
        "tools": [tool.name for tool in spec.functions],
        "options": {tool.name: {option.name: option.value for option in tool.config} for tool in spec.functions},
        "style": spec.workflow.type.value,
        "calls": [],
        "e2e": [],
        "mcp": None,
    }

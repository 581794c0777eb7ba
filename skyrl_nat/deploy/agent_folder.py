"""A created agent as a folder that installs and runs, with its validation report and the traces of its making."""

import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skyrl_nat.data.traces.record import Trace
from skyrl_nat.data.traces.record_json import to_json
from skyrl_nat.environments.nat_agent.payload import AgentSpec
from skyrl_nat.environments.nat_agent.solution import render_pyproject
from skyrl_nat.errors import DataError

PACKAGE = "agent"
"""Folder of the agent within the folder of the request."""
RECORD = "record.json"
TRACES = "traces.jsonl"
REPORT_JSON, REPORT_MD = "VALIDATION.json", "VALIDATION.md"


def complete_files(spec: AgentSpec, files: Mapping[str, str]) -> dict[str, str]:
    """Return a package's files with what a task may not have asked for and an installation needs.

    Nothing that is there is changed.
    """
    root = "src/" if any(path.startswith(f"src/{spec.package}/") for path in files) else ""
    added = {
        f"{root}{spec.package}/__init__.py": "",
        "pyproject.toml": render_pyproject(spec),
        "README.md": _readme(spec, _workflow_file(spec, files)),
    }
    return {**added, **files}


def write_agent(folder: Path, files: Mapping[str, str], record: Mapping[str, Any], traces: Sequence[Trace]) -> None:
    """Write everything about one created agent; the folder appears only when it is complete.

    Args:
        folder: Must not exist.
        files: Of the agent.
        record: Its validation report and where it came from.
        traces: Of the policy's episode, and of what was delivered.

    Raises:
        DataError: A path leaves the folder.
    """
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        root = (part / PACKAGE).resolve()
        root.mkdir(parents=True)
        reports = {REPORT_JSON: json.dumps(record, indent=1) + "\n", REPORT_MD: to_markdown(record)}
        for name, text in {**files, **reports}.items():
            path = (root / name).resolve()
            if not path.is_relative_to(root):
                raise DataError(f"Files of an agent must stay in its folder, got {name!r}. Leave it out")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if path.suffix == ".sh":
                path.chmod(0o755)
        (part / TRACES).write_text("".join(to_json(trace) + "\n" for trace in traces), encoding="utf-8")
        (part / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return what was written of an agent; None where there is none."""
    path = folder / RECORD
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def archive(folder: Path) -> bytes:
    """Return an agent as a `.tar.gz`, the same bytes every time."""
    buffer = io.BytesIO()
    root = folder / PACKAGE
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(root.rglob("*")):
            if path.is_file() and not path.is_symlink():
                info = tarfile.TarInfo(f"{folder.name}/{path.relative_to(root)}")
                info.size, info.mode = path.stat().st_size, path.stat().st_mode & 0o777
                with path.open("rb") as file:
                    tar.addfile(info, file)
    return gzip.compress(buffer.getvalue(), mtime=0)


def to_markdown(record: Mapping[str, Any]) -> str:
    """Return the validation report as a page."""
    verdict = record["validation"]
    rows = [f"| {s['name']} | {'ok' if s['is_ok'] else 'FAILED'} | {s['seconds']:.2f} |" for s in verdict["stages"]]
    findings = [f"* {text}" for text in verdict["findings"]] or ["None."]
    head = "passed every check" if verdict["is_success"] else "did NOT pass every check"
    lines = [
        f"# {record['name']}",
        "",
        f"{record['description']}",
        "",
        f"The package {head}: {verdict['reward']:.3f} of 1. Written by: {record['outcome']}.",
        "",
        "| check | verdict | seconds |",
        "|---|---|---|",
        *rows,
        "",
        "## Findings",
        "",
        *findings,
    ]
    return "\n".join(lines) + "\n"


def _workflow_file(spec: AgentSpec, files: Mapping[str, str]) -> str:
    found = sorted(path for path in files if path.endswith((".yml", ".yaml")) and f"{spec.package}/" in path)
    return found[0] if found else f"{spec.package}/config.yml"


def _readme(spec: AgentSpec, workflow_file: str) -> str:
    needs = "\nIts LLM is NVIDIA's: export NVIDIA_API_KEY first.\n" if spec.integration.llms else ""
    return (
        f"# {spec.name}\n\n{spec.description}\n{needs}\n```bash\npip install .\n"
        f'nat run --config_file {workflow_file} --input "…"\n```\n\n'
        f"What was checked, and how it went, is in {REPORT_MD}.\n"
    )

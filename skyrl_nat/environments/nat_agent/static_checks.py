"""What the parent can see without running anything: files there, Python parses, YAML loads without doubles."""

import ast
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import yaml

from skyrl_nat.environments.nat_agent.payload import AgentSpec

MAX_FILES = 16
MAX_FILE_CHARS = 20_000
_CONFIG_NAMES = ("config", "workflow")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticReport:
    """Evidence of the static stage."""

    files: dict[str, str]
    """What may go into the sandbox."""
    source_root: str
    """`src`, or empty for a flat layout."""
    module: str
    """Module whose import registers the tools; empty if its file is missing."""
    config: str
    """Path of the workflow file; empty if there is none."""
    python_share: float
    """0 no Python or it does not parse, 0.5 it parses, 1 it also registers an async function."""
    yaml_share: float
    """0 no YAML or it does not load, 0.5 it loads, 1 it also names the workflow."""
    findings: list[str] = field(default_factory=list)

    @property
    def files_share(self) -> float:
        """Share of the two required files that are there."""
        return (bool(self.module) + bool(self.config)) / 2


def check_files(spec: AgentSpec, files: dict[str, str]) -> StaticReport:
    """Return what can be said about an answer without running it."""
    findings: list[str] = []
    kept = {path: text for path, text in list(files.items())[:MAX_FILES] if len(text) <= MAX_FILE_CHARS}
    if len(kept) < len(files):
        findings.append(f"left out {len(files) - len(kept)} files: at most {MAX_FILES} of {MAX_FILE_CHARS} characters")
    source_root, module = "", ""
    for root in ("src", ""):
        if f"{root}/{spec.package}/register.py".lstrip("/") in kept:
            source_root, module = root, f"{spec.package}.register"
            break
    if not module:
        findings.append(f"{spec.package}/register.py is missing")
    config = _find_config(kept)
    if not config:
        findings.append(f"{spec.package}/config.yml is missing")
    return StaticReport(
        files=kept,
        source_root=source_root,
        module=module,
        config=config,
        python_share=_check_python(kept, findings) if module else 0.0,
        yaml_share=_check_yaml(config, kept[config], spec, findings) if config else 0.0,
        findings=findings,
    )


def _find_config(files: dict[str, str]) -> str:
    paths = [path for path in files if PurePosixPath(path).suffix in (".yml", ".yaml")]
    named = [path for path in paths if PurePosixPath(path).stem in _CONFIG_NAMES]
    return min(named or paths, default="", key=lambda path: (len(path), path))


def _check_python(files: dict[str, str], findings: list[str]) -> float:
    has_registration = False
    for path, text in files.items():
        if not path.endswith(".py"):
            continue
        try:
            tree = ast.parse(text, filename=path)
        except SyntaxError as error:
            findings.append(f"{path}:{error.lineno}: {error.msg}")
            return 0.0
        except (ValueError, RecursionError, MemoryError) as error:
            findings.append(f"{path}: cannot be parsed: {type(error).__name__}")
            return 0.0
        has_registration |= any(_is_registration(node) for node in ast.walk(tree))
    if not has_registration:
        findings.append("no async function is decorated with @register_function")
    return 1.0 if has_registration else 0.5


def _is_registration(node: ast.AST) -> bool:
    if not isinstance(node, ast.AsyncFunctionDef):
        return False
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        if name == "register_function":
            return True
    return False


def _check_yaml(path: str, text: str, spec: AgentSpec, findings: list[str]) -> float:
    try:
        value = load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        findings.append(f"{path}: {' '.join(str(error).split())[:300]}")
        return 0.0
    workflow = value.get("workflow") if isinstance(value, dict) else None
    found = workflow.get("_type") if isinstance(workflow, dict) else None
    if found != spec.workflow_type:
        findings.append(f"{path}: workflow._type must be {spec.workflow_type}, got {str(found)[:60]}")
        return 0.5
    return 1.0


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses a key twice in one mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == "tag:yaml.org,2002:merge":
                raise ValueError(f"merge key << in line {line}: nested ones grow without bound, write the keys out")
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise ValueError(f"key {key!r} stands twice, in lines {seen[key]} and {line}")
                seen[key] = line
        return super().construct_mapping(node, deep=deep)


def load_yaml(text: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        yaml.YAMLError: It is no YAML.
        ValueError: A key stands twice in one mapping; the message has both lines.
    """
    return yaml.load(text, Loader=_StrictLoader)

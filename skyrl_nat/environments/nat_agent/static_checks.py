"""What the parent can see without running anything: files there, Python parses, YAML loads without doubles."""

import ast
import itertools
import shlex
import tomllib
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import yaml

from skyrl_nat.environments.nat_agent.patterns import (
    count_hints,
    find_fields,
    find_test_names,
    find_type_names,
    is_registration,
    parse_python,
)
from skyrl_nat.environments.nat_agent.payload import AgentSpec
from skyrl_nat.environments.nat_agent.suspicion import suspicious_code, suspicious_files

MAX_FILES = 24
MAX_FILE_CHARS = 20_000
SCRIPT_FOLDERS = ("scripts", "")
MAX_DOTS = 60
"""In a line of pyproject.toml: a key of thousands of parts keeps the parser busy for seconds."""
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
    hint_share: float = 0.0
    """Share of arguments and returns of the package's functions that are annotated."""
    has_raise: bool = False
    """Whether the package's code refuses anything."""
    tests: tuple[str, ...] = ()
    """Ids of the package's own tests, `file::name` without parameters."""
    own_types: tuple[str, ...] = ()
    """Type names of the configuration classes that the package defines."""
    own_fields: tuple[str, ...] = ()
    """Fields of all its classes."""
    script: str = ""
    """Path of the MCP start script whose last command starts NAT's server; empty if there is none."""
    is_installable: bool = False
    """Whether pyproject.toml has the entry point that NAT looks for."""
    suspicions: tuple[str, ...] = ()
    findings: list[str] = field(default_factory=list[str])

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
    source_root = "src" if f"src/{spec.package}/register.py" in kept else ""
    path = f"{source_root}/{spec.package}/register.py".lstrip("/")
    module = f"{spec.package}.register" if path in kept else ""
    if not module:
        findings.append(f"{spec.package}/register.py is missing")
    config = _find_config(kept)
    if not config:
        findings.append(f"{spec.package}/config.yml is missing")
    trees = _parse_python(kept, findings)
    package = {name: tree for name, tree in (trees or {}).items() if not is_test_file(name)}
    return StaticReport(
        files=kept,
        source_root=source_root,
        module=module,
        config=config,
        python_share=_python_share(trees, package, findings) if module else 0.0,
        yaml_share=_check_yaml(config, kept[config], spec, findings) if config else 0.0,
        hint_share=count_hints(package.values()),
        has_raise=any(isinstance(node, ast.Raise) for tree in package.values() for node in ast.walk(tree)),
        tests=_find_tests(spec, trees or {}, findings),
        own_types=tuple(sorted({name for tree in package.values() for name in find_type_names(tree)})),
        own_fields=tuple(sorted({name for tree in package.values() for name in find_fields(tree)})),
        script=_find_script(spec, kept, config, findings),
        is_installable=_is_installable(spec, kept, findings),
        suspicions=(*suspicious_files(files), *suspicious_code(trees or {})),
        findings=findings,
    )


def is_test_file(path: str) -> bool:
    """Return whether pytest would collect a file."""
    pure = PurePosixPath(path)
    return pure.suffix == ".py" and (pure.name.startswith("test_") or pure.stem.endswith("_test"))


def _find_config(files: dict[str, str]) -> str:
    paths = [path for path in files if PurePosixPath(path).suffix in (".yml", ".yaml")]
    named = [path for path in paths if PurePosixPath(path).stem in _CONFIG_NAMES]
    return min(named or paths, default="", key=lambda path: (len(path), path))


def _parse_python(files: dict[str, str], findings: list[str]) -> dict[str, ast.Module] | None:
    """Return the syntax trees; None where the package's own code does not parse."""
    trees: dict[str, ast.Module] = {}
    is_whole = True
    for path, text in files.items():
        if not path.endswith(".py"):
            continue
        try:
            trees[path] = parse_python(text, path)
        except SyntaxError as error:
            findings.append(f"{path}:{error.lineno}: {error.msg}")
            is_whole = is_whole and is_test_file(path)
        except (ValueError, RecursionError, MemoryError) as error:
            findings.append(f"{path}: cannot be parsed: {type(error).__name__}")
            is_whole = is_whole and is_test_file(path)
    return trees if is_whole else None


def _python_share(trees: dict[str, ast.Module] | None, package: dict[str, ast.Module], findings: list[str]) -> float:
    if trees is None:
        return 0.0
    if any(is_registration(node) for tree in package.values() for node in ast.walk(tree)):
        return 1.0
    findings.append("no async function is decorated with @register_function")
    return 0.5


def _find_tests(spec: AgentSpec, trees: dict[str, ast.Module], findings: list[str]) -> tuple[str, ...]:
    names = [f"{path}::{name}" for path, tree in trees.items() if is_test_file(path) for name in find_test_names(tree)]
    found = tuple(dict.fromkeys(names))  # of two with one name, Python keeps the last
    if len(found) < spec.integration.num_tests:
        findings.append(f"tests: at least {spec.integration.num_tests} must be there, found {len(found)}")
    return found


def _find_script(spec: AgentSpec, files: dict[str, str], config: str, findings: list[str]) -> str:
    """Return the start script that ends with NAT's own server on the package's own config."""
    if not spec.integration.mcp:
        return ""
    for folder in SCRIPT_FOLDERS:
        path = f"{folder}/setup_mcp.sh".lstrip("/")
        if path not in files:
            continue
        words = _last_command(files[path])
        if words[:3] == ["nat", "mcp", "serve"] and config and _names_config(words, config):
            return path
        findings.append(f"{path}: the last command must be `nat mcp serve --config_file {config}`, got {words[:6]}")
        return ""
    findings.append("scripts/setup_mcp.sh is missing")
    return ""


def _last_command(text: str) -> list[str]:
    lines = text.replace("\\\n", " ").splitlines()
    for line in reversed(lines):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            return []
        if words:
            return words[1:] if words[0] == "exec" else words
    return []


def _names_config(words: list[str], config: str) -> bool:
    for option, value in itertools.pairwise(words):
        if option == "--config_file" and value.removeprefix("./") == config:
            return True
    return any(word == f"--config_file={config}" for word in words)


def _is_installable(spec: AgentSpec, files: dict[str, str], findings: list[str]) -> bool:
    """Return whether the entry point names the package's own register module."""
    if not spec.integration.is_installable:
        return False
    try:
        text = files.get("pyproject.toml", "")
        if any(line.count(".") > MAX_DOTS for line in text.split("\n")):  # TOML's own lines
            raise ValueError("a key of very many parts")
        value: Any = tomllib.loads(text)
        points = value["project"]["entry-points"]["nat.components"]
        if any(point == f"{spec.package}.register" for point in points.values()):
            return True
        findings.append(f"pyproject.toml: an entry point nat.components must be {spec.package}.register")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        findings.append(f"pyproject.toml: must have [project.entry-points.'nat.components'], got {error}"[:200])
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
        findings.append(f"{path}: workflow._type must be {spec.workflow_type}, got {_shown(found)}")
        return 0.5
    llms = value.get("llms")
    missing = [name for name in spec.integration.llms if not (isinstance(llms, dict) and name in llms)]
    if missing:
        findings.append(f"{path}: llms must have {', '.join(missing)}")
        return 0.5
    return 1.0


def _shown(value: Any) -> str:
    """Return a value of a workflow file, short; long numbers cannot be printed at all."""
    return value[:60] if isinstance(value, str) else "None" if value is None else type(value).__name__


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses a key twice in one mapping, and anchors."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1
            raise ValueError(f"alias *{event.anchor} in line {line}: nested ones grow without bound, write it out")
        return super().compose_node(parent, index)

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
        ValueError: A key stands twice in one mapping (the message has both lines), or there is an alias.
    """
    try:
        return yaml.load(text, Loader=_StrictLoader)
    # PyYAML's own constructors raise these, as for `!!int ""`.
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"a tag does not fit its value: {type(error).__name__}: {error}") from error

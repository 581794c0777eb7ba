"""Write docs/configuration.md: every key of a run's config, from the dataclasses, their checks and the presets.

usage: build_config_reference.py [--check]      (--check writes nothing and fails where the file is out of date)
"""

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, get_args

import yaml
from made_page import write_or_check

from skyrl_nat.config.run import RunConfig

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/configuration.md"
SIGNS = {"require_positive": "be > 0", "require_not_negative": "be >= 0"}
HEAD = """# Configuration

<!-- Made by scripts/build_config_reference.py from skyrl_nat/config/ and conf/: change those, then run it again. -->

Every key of a run, as it is written on the command line: `skyrl-nat train trainer.steps=3 algorithm.clip_high=0.28`.
`conf/train.yaml` puts the presets together, and what stands on the command line wins over them. Unknown keys, wrong
types and values outside the limits named here are refused before anything starts. Under each key: its type, its
default, its limits, what it does, and the presets that set it to something else.
"""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the config."""

    path: str
    type: Any
    default: Any
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """A dataclass of the config; the top one has an empty path."""

    path: str
    text: str
    keys: tuple[Key, ...]


def sections(kind: type = RunConfig, path: str = "") -> Iterator[Section]:
    """Yield a section of the config and those below it."""
    texts, keys, below = attribute_texts(kind), [], []
    for field in dataclasses.fields(kind):
        name = f"{path}.{field.name}".lstrip(".")
        if dataclasses.is_dataclass(field.type):
            below.append((field.type, name))
        else:
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            keys.append(Key(name, field.type, default, texts.get(field.name, "")))
    yield Section(path, one_line(inspect.getdoc(kind) or ""), tuple(keys))
    for nested, name in below:
        yield from sections(nested, name)


@cache
def attribute_texts(kind: type) -> dict[str, str]:
    """Return the docstrings that stand below the attributes of a class."""
    node = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(node, ast.ClassDef)
    texts = {}
    for statement, after in zip(node.body, node.body[1:], strict=False):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(target, ast.Name) and is_text and isinstance(after.value.value, str):
            texts[target.id] = one_line(after.value.value)
    return texts


@cache
def limits() -> dict[str, list[str]]:
    """Return what the checks say that a key must, by its path."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "skyrl_nat/config").glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        numbers = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.targets[0], ast.Name)
        }
        for call, names in calls_in(tree, ("{}",)):
            for path, must in limits_of(call, numbers):
                for name in names:
                    limit = must.replace("{}", name)
                    if not limit.endswith("{}") and limit not in found.setdefault(path.replace("{}", name), []):
                        found[path.replace("{}", name)].append(limit)
    return found


def calls_in(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[ast.Call, tuple[str, ...]]]:
    """Yield the calls below a node, each with the names that the loop around it goes through."""
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
        names = tuple(item.value for item in node.iter.elts if is_text(item)) or names
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield node, names
    for child in ast.iter_child_nodes(node):
        yield from calls_in(child, names)


def limits_of(call: ast.Call, numbers: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield path and limit of one call of a check."""
    function, words = call.func.id, [spoken(argument, numbers) for argument in call.args]
    if function in SIGNS:
        names = [constant.value for argument in call.args[2:] for constant in ast.walk(argument) if is_text(constant)]
        yield from ((f"{words[1]}.{name}", SIGNS[function]) for name in names)
    elif function == "require" and len(words) > 2:
        yield words[1], words[2]
    elif function == "_require_between":
        yield f"algorithm.{words[1]}", f"be {words[2]}"
    elif function == "require_multiple":
        yield words[0], f"be a multiple of {words[3]}"
    elif function == "require_divisor":
        yield words[0], f"divide {'the query heads of model.path' if words[3] == '{}' else words[3]}"


def is_text(node: ast.AST) -> bool:
    """Return whether a node is a piece of text."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def spoken(node: ast.expr, numbers: dict[str, Any]) -> str:
    """Return a literal or formatted text without the values of one run: what decides them is named instead."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if not isinstance(node, ast.JoinedStr):
        return "{}"
    text = ""
    for part in node.values:
        is_name = isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name)
        text += (
            str(part.value)
            if isinstance(part, ast.Constant)
            else str(numbers.get(part.value.id, "{}"))
            if is_name
            else "{}"
        )
    text = re.sub(r" \([^(]*\{\}[^(]*\)| = \{\}", "", text)
    text = re.sub(r"(\S+)=\{\}", r"some values of \1", text)
    return text.replace("{} ", "")


@cache
def presets() -> dict[str, dict[str, Any]]:
    """Return the values that each preset writes, by preset and path."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted((ROOT / "conf").glob("*/*.yaml")):
        text = file.read_text(encoding="utf-8")
        data = yaml.safe_load(text) or {}
        data.pop("defaults", None)
        prefix = "" if "@package _global_" in text else file.parent.name
        found[f"{file.parent.name}={file.stem}"] = dict(leaves(data, prefix))
    return found


def leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield path and value of everything in a preset."""
    if isinstance(node, dict) and path not in free_keys():
        for name, item in node.items():
            yield from leaves(item, f"{path}.{name}".lstrip("."))
    else:
        yield path, node


@cache
def free_keys() -> set[str]:
    """Return the keys whose values are mappings with names of the user's own."""
    return {key.path for section in sections() for key in section.keys if isinstance(key.default, dict)}


def one_line(text: str) -> str:
    """Return text without line breaks."""
    return " ".join(text.split())


def shown(value: Any) -> str:
    """Return a value as it is written on a command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {shown(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return str(value) or '""'


def type_name(kind: Any) -> str:
    """Return a type in words of YAML."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return "one of " + ", ".join(f"`{member}`" for member in kind)
    names = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    if kind in names:
        return names[kind]
    parts = get_args(kind)
    if type(None) in parts:
        return f"{type_name(next(part for part in parts if part is not type(None)))} or null"
    inner = [names.get(part, "anything") for part in parts]
    return f"list of {inner[0]}" if len(inner) == 1 else f"mapping of names to {inner[1]}"


def paragraph_of(key: Key) -> str:
    """Return what the page says of one key."""
    facts = [type_name(key.type), f"default `{shown(key.default)}`"]
    musts = [re.sub(r"^be ", "", must) if must.startswith("be >") else f"must {must}" for must in known_limits(key)]
    lines = [f"### `{key.path}`", "", " · ".join(facts + musts), "", key.text]
    if isinstance(key.type, type) and issubclass(key.type, StrEnum):
        texts = attribute_texts(key.type)
        lines += ["", *(f"* `{member}`: {texts.get(member.name, '')}" for member in key.type)]
    others = {
        name: values[key.path]
        for name, values in presets().items()
        if key.path in values and values[key.path] != key.default
    }
    if others:
        lines += ["", "Presets: " + ", ".join(f"`{name}` → `{shown(value)}`" for name, value in others.items())]
    return "\n".join(lines)


def known_limits(key: Key) -> list[str]:
    """Return a key's limits, those of single entries of a mapping included."""
    entries = [must.replace("be ", "hold only ", 1) for must in limits().get(f"{key.path}.{{}}", [])]
    return limits().get(key.path, []) + entries


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for section in sections():
        title = f"## `{section.path}`" if section.path else "## The run"
        text = re.sub(r"^Section `[^`]+`(: |\.)", "", section.text)
        parts.append(f"{title}\n\n{text[:1].upper()}{text[1:]}\n" if text else f"{title}\n")
        parts += [paragraph_of(key) + "\n" for key in section.keys]
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    return write_or_check(PAGE, page(), Path(__file__).name, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

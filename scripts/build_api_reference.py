"""Write docs/API_REFERENCE.md: Python's names for others, the commands and the HTTP services, as the code says them.

usage: build_api_reference.py [--check]      (--check writes nothing and fails where the file is out of date)

Python's part is read from the source, nothing is imported; commands come from their parser, HTTP from OpenAPI.
"""

import argparse
import ast
import inspect
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from made_page import write_or_check

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/API_REFERENCE.md"
HEAD = """# API reference

<!-- Made by scripts/build_api_reference.py from the code: change that, then run it again. -->

What others may build on: the records and protocols of Python, the commands, and the HTTP services. Each name has its
signature, the first sentence of its description, and what it raises; the source says the rest. Config keys are in
[configuration.md](configuration.md).
"""
MODULES = {
    "Records and errors": ("types", "errors"),
    "A run's config": ("config.load", "config.overrides"),
    "Objectives": tuple(
        f"algorithms.{name}"
        for name in ("advantages", "losses", "reduction", "kl", "off_policy", "covariance", "coefficients")
    ),
    "Task families": (
        *("environments.base", "environments.family", "environments.registry"),
        *("rewards.validators", "rewards.rubric", "data.specs", "data.task_source"),
    ),
    "Playing": ("engines.base", "rollouts.harness", "rollouts.runner"),
    "Borders of the machine": ("sandbox.base", "weight_sync.base", "monitoring.tracker", "data.planner.backends"),
    "Deployment": ("feature_flag", "service.app", "service.settings", "deploy.app"),
}
AGENTS = ROOT / "skyrl_nat/deploy/app.py"
WIDTH = 100


def first_sentence(text: str | None) -> str:
    """Return the first sentence of a description on one line."""
    line = " ".join((text or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.])\s+(?=[A-Z`])", line)[0]


def raised(text: str | None) -> list[str]:
    """Return the entries under Raises of a description."""
    block = re.search(r"^Raises:\n((?:[ ]+.*\n?)+)", text or "", re.MULTILINE)
    entries = re.split(r"\n(?=    \w)", block[1].rstrip()) if block else []
    return [re.sub(r"^(\w+)", r"`\1`", " ".join(entry.split())).rstrip(".") for entry in entries]


def docstring(node: ast.AST) -> str | None:
    """Return a node's description."""
    text = ast.get_docstring(node)  # pyright: ignore[reportArgumentType]
    return None if text is None else inspect.cleandoc(text)


def is_public(node: ast.AST) -> bool:
    """Return whether a node is a function or class for others."""
    is_named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return is_named and not node.name.startswith("_")


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return a function's name, arguments and result, without self."""
    arguments = re.sub(r"^(self|cls)(, |$)", "", ast.unparse(node.args))
    word = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{word}{node.name}({arguments})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")


def function_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return one item of a list for a function, or for a property."""
    text, names = docstring(node), [ast.unparse(decorator) for decorator in node.decorator_list]
    result = f": {ast.unparse(node.returns)}" if node.returns else ""
    shown = f"{node.name}{result}" if "property" in names else signature(node)
    errors = f" Raises {'; '.join(raised(text))}." if raised(text) else ""
    return f"* `{shown}`" + (f": {first_sentence(text)}" if text else "") + errors


def attributes(node: ast.ClassDef) -> Iterator[str]:
    """Yield an item for every public attribute of a class, with the sentence below it."""
    for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and not ast.unparse(statement.target).startswith("_"):
            default = f" = {ast.unparse(statement.value)}" if statement.value else ""
            shown = f"{ast.unparse(statement.target)}: {ast.unparse(statement.annotation)}{default}"
        elif isinstance(statement, ast.Assign) and not ast.unparse(statement.targets[0]).startswith("_"):
            shown = ast.unparse(statement)
        else:
            continue
        constant = after.value if isinstance(after, ast.Expr) else None
        text = constant.value if isinstance(constant, ast.Constant) and isinstance(constant.value, str) else ""
        yield f"* `{shown}`" + (f": {' '.join(text.split())}" if text else "")


def class_lines(node: ast.ClassDef) -> list[str]:
    """Return what the page says of a class."""
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    lines = [f"**`{node.name}`**" + (f" ({bases})" if bases else "") + f": {first_sentence(docstring(node))}"]
    items = list(attributes(node))
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and is_public(child):
            items.append(function_line(child))
    return [*lines, "", *items, ""] if items else [*lines, ""]


def module_lines(name: str) -> list[str]:
    """Return what the page says of a module."""
    tree = ast.parse((ROOT / "skyrl_nat" / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8"))
    lines = [f"### `skyrl_nat.{name}`", "", first_sentence(docstring(tree)), ""]
    nodes = [node for node in tree.body if is_public(node)]
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            lines += class_lines(node)
    functions = [function_line(node) for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [*lines, *functions, ""] if functions else lines


def commands() -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Yield every command with its parser and help."""
    from skyrl_nat.cli import command_parser

    yield from below(command_parser(), "")


def below(parser: argparse.ArgumentParser, text: str) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Yield a parser without subcommands, or those of its subcommands."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield parser.prog, parser, text
    for group in groups:
        helps = {choice.dest: choice.help or "" for choice in group._choices_actions}
        for name, child in group.choices.items():
            yield from below(child, helps.get(name, ""))


def command_lines() -> list[str]:
    """Return the part on commands."""
    lines = [
        "## Commands",
        "",
        "Overrides are those of [configuration.md](configuration.md); they may stand anywhere.",
        "",
    ]
    for name, parser, text in commands():
        parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=WIDTH)
        shown = f"{text[:1].upper()}{text[1:]}."
        lines += [f"### `{name}`", "", shown, "", "```text", parser.format_help().rstrip(), "```", ""]
    return lines


def service_lines() -> list[str]:
    """Return the part on the training service, from its OpenAPI."""
    from skyrl_nat.service.app import create_app
    from skyrl_nat.service.settings import ServiceSettings

    with tempfile.TemporaryDirectory() as folder:
        paths: dict[str, dict[str, Any]] = create_app(ServiceSettings(root_dir=Path(folder), token="x" * 32)).openapi()[
            "paths"
        ]
    rows = [
        (
            f"{method.upper()} {path}",
            first_sentence(operation.get("description") or operation.get("summary")),
            operation,
        )
        for path, methods in sorted(paths.items())
        for method, operation in methods.items()
    ]
    table = [f"| `{call}` | {text.replace('|', ',')} | {', '.join(sorted(o['responses']))} |" for call, text, o in rows]
    about = "`skyrl-nat serve`; described with examples in [service.md](service.md), in full at `/openapi.json`."
    return ["## The training service", "", about, "", "| call | | answers |", "|---|---|---|", *table, ""]


def agents_lines() -> list[str]:
    """Return the part on the service that creates agents, from its source."""
    tree = ast.parse(AGENTS.read_text(encoding="utf-8"))
    texts = {node.name: docstring(node) for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    rows = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("app.router.add_"):
            path, handler = (ast.unparse(argument).strip("'") for argument in node.args)
            method = ast.unparse(node.func).removeprefix("app.router.add_").upper()
            rows.append(f"| `{method} {path}` | {first_sentence(texts[handler.partition('.')[2]])} |")
    about = "`skyrl-nat deploy agents`; described in [deployment.md](deployment.md)."
    return ["## The agents' service", "", about, "", "| call | |", "|---|---|", *rows, ""]


def page() -> str:
    """Return the whole page."""
    lines = [HEAD, "## Python", ""]
    for title, names in MODULES.items():
        lines += [f"**{title}:** " + ", ".join(f"[`{name}`](#skyrl_nat{name.replace('.', '')})" for name in names), ""]
    for names in MODULES.values():
        for name in names:
            lines += module_lines(name)
    lines += command_lines() + service_lines() + agents_lines()
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    return write_or_check(PAGE, page(), Path(__file__).name, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

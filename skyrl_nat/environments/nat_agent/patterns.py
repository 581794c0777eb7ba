"""NAT's patterns in a syntax tree: registrations, annotations, tests."""

import ast
import threading
from collections.abc import Iterable, Iterator

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PARSING = threading.Lock()


def parse_python(source: str, filename: str = "package") -> ast.Module:
    """Return the syntax tree; one at a time.

    Python 3.11 counts the depth of all trees that are being made in one place, so two threads that parse at once
    disturb each other (SystemError: AST constructor recursion depth mismatch).

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: It cannot be parsed.
    """
    with _PARSING:
        return ast.parse(source, filename=filename)


def is_registration(node: ast.AST) -> bool:
    """Return whether a node is an async function decorated with `register_function`."""
    if not isinstance(node, ast.AsyncFunctionDef):
        return False
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        if name == "register_function":
            return True
    return False


def count_hints(trees: Iterable[ast.Module]) -> float:
    """Return the share of arguments and returns that are annotated; 1 where there are none.

    What a registered builder gives is a generator that NAT reads itself, so its return needs no hint.
    """
    total = annotated = 0
    for tree in trees:
        for node in ast.walk(tree):
            if not isinstance(node, _FUNCTIONS):
                continue
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            hints = [a.annotation is not None for a in arguments if a.arg not in ("self", "cls")]
            if not is_registration(node):
                hints.append(node.returns is not None)
            total += len(hints)
            annotated += sum(hints)
    return annotated / total if total else 1.0


def find_test_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the tests that pytest would collect, `name` or `Class::name`."""
    for node in tree.body:
        if isinstance(node, _FUNCTIONS) and node.name.startswith("test"):
            yield node.name
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            for inner in node.body:
                if isinstance(inner, _FUNCTIONS) and inner.name.startswith("test"):
                    yield f"{node.name}::{inner.name}"


def find_type_names(tree: ast.Module) -> Iterator[str]:
    """Yield the `name=` of every class, which is what NAT's workflow files call `_type`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for keyword in node.keywords:
                value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                if keyword.arg == "name" and isinstance(value, str):
                    yield value


def find_fields(tree: ast.Module) -> Iterator[str]:
    """Yield the annotated names in the bodies of classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield line.target.id

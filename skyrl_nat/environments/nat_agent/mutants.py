"""Wrong versions of right code, and other versions of the same code: what tests must notice and must not notice."""

import ast
import copy
import random
from collections.abc import Callable, Iterator

from skyrl_nat.environments.nat_agent.patterns import is_registration, parse_python

_OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_NAMES = {"max": "min", "min": "max", "any": "all", "all": "any", "lower": "upper", "upper": "lower", "sum": "len"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ANY_FUNCTION = (*_FUNCTIONS, ast.Lambda)
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
MAX_NUMBER = 10**100
"""Longer ones may not be printed any more once they are changed."""


def mutate(source: str, rng: random.Random, count: int) -> list[str]:
    """Return up to `count` versions of Python source with one mistake each, in the body of some function.

    Args:
        source: Python that parses.
        rng: Chooses the places.
        count: How many.
    """
    tree = parse_python(source)
    places = [(index, change) for index, change in enumerate(_changes(tree))]
    rng.shuffle(places)
    found: list[str] = []
    original = ast.unparse(tree)
    for index, _ in places:
        if len(found) >= count:
            break
        fresh = copy.deepcopy(tree)
        list(_changes(fresh))[index]()
        text = ast.unparse(ast.fix_missing_locations(fresh))
        if text != original and f"{text}\n" not in found:
            found.append(f"{text}\n")
    return found


def mutate_all(source: str, rng: random.Random, count: int) -> list[str]:
    """Return `count` versions of Python source with one mistake in every function that has a place for one.

    Each version makes another mistake, until a function has no more of them.
    """
    orders = [list(range(len(list(_changes_of(function))))) for function in _functions(parse_python(source))]
    for order in orders:
        rng.shuffle(order)
    found: list[str] = []
    for number in range(count):
        tree = parse_python(source)
        for function, order in zip(_functions(tree), orders, strict=True):
            if order:
                list(_changes_of(function))[order[number % len(order)]]()
        found.append(ast.unparse(ast.fix_missing_locations(tree)) + "\n")
    return found


def plain(source: str) -> str:
    """Return Python source as it looks without a change."""
    return ast.unparse(parse_python(source)) + "\n"


def restate(source: str) -> str:
    """Return the same program written otherwise: nothing but a look at the source can tell them apart."""
    tree = parse_python(source)
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            at = 1 if ast.get_docstring(node) is not None else 0
            node.body.insert(at, parse_python("_restated = None").body[0])
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _changes(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """Yield every single change of the functions' bodies, in a fixed order."""
    for function in _functions(tree):
        yield from _changes_of(function)


def _functions(tree: ast.Module) -> list[_Function]:
    """Return the functions, but those that only build others for NAT: a mistake there breaks all, and shows nothing."""
    return [node for node in ast.walk(tree) if isinstance(node, _ANY_FUNCTION) and not is_registration(node)]


def _changes_of(function: _Function) -> Iterator[Callable[[], None]]:
    if isinstance(function, ast.Lambda):
        yield from _changes_below(function.body)
        return
    for statement in function.body:
        if not _is_left_alone(statement):
            yield from _changes_below(statement)


def _is_left_alone(node: ast.AST) -> bool:
    """Docstrings, what is yielded to NAT, messages of exceptions, inner functions (they have their turn)."""
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Raise)):
        return True
    if isinstance(node, ast.Lambda):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, (ast.Constant, ast.Yield))


def _changes_below(node: ast.AST) -> Iterator[Callable[[], None]]:
    yield from _changes_here(node)
    for child in ast.iter_child_nodes(node):
        if not _is_left_alone(child):
            yield from _changes_below(child)


def _changes_here(node: ast.AST) -> Iterator[Callable[[], None]]:
    if isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)) and type(node.op) in _OPERATORS:
        yield lambda: setattr(node, "op", _OPERATORS[type(node.op)]())
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _OPERATORS:
        yield lambda: node.ops.__setitem__(0, _OPERATORS[type(node.ops[0])]())  # type: ignore[arg-type]
    elif isinstance(node, ast.Constant):
        yield from _constant_changes(node)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield lambda: setattr(node, "op", ast.UAdd())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield lambda: setattr(node, "operand", ast.UnaryOp(op=ast.Not(), operand=node.operand))
    elif isinstance(node, ast.Name) and node.id in _NAMES and isinstance(node.ctx, ast.Load):
        yield lambda: setattr(node, "id", _NAMES[node.id])
    elif isinstance(node, ast.Attribute) and node.attr in _NAMES:
        yield lambda: setattr(node, "attr", _NAMES[node.attr])


def _constant_changes(node: ast.Constant) -> Iterator[Callable[[], None]]:
    value = node.value
    if isinstance(value, bool):
        yield lambda: setattr(node, "value", not value)
    elif isinstance(value, (int, float)) and abs(value) < MAX_NUMBER:
        yield lambda: setattr(node, "value", value + 1)
    elif isinstance(value, str):
        yield lambda: setattr(node, "value", value + "x")

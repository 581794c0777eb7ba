"""Every family by itself: variants are whole, their bodies keep their word, their inputs notice mistakes."""

import ast
import json
import pkgutil
import random
import signal
from collections import Counter
from collections.abc import Callable, Coroutine
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from skyrl_nat.data.synthesis import families
from skyrl_nat.data.synthesis.family import TYPES, Family, ToolTemplate, ToolVariant
from skyrl_nat.environments.nat_agent.generators import draw
from skyrl_nat.environments.nat_agent.mutants import mutate

NAMES = sorted(module.name for module in pkgutil.iter_modules(families.__path__))
NUM_DRAWS = 60
SEEDS = range(4)
PYTHON = {"int": int, "float": float, "str": str, "bool": bool}
Outcome = tuple[str, Any]


def family_of(name: str) -> Family:
    return import_module(f"{families.__name__}.{name}").FAMILY


TEMPLATES = [
    pytest.param(template, id=f"{name}-{template.make.__name__}")
    for name in NAMES
    for template in family_of(name).tools
]


@pytest.fixture(autouse=True)
def end_of_patience() -> Any:
    """A changed loop may never end."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)


def compiled(variant: ToolVariant, source: str) -> Callable[[Any], Outcome]:
    scope: dict[str, Any] = {
        "config": SimpleNamespace(**{name: option.set for name, option in variant.options.items()})
    }
    exec(source, scope)

    def call(value: Any) -> Outcome:
        value = json.loads(json.dumps(value))
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            result = finished(scope["run"](value) if len(variant.args) == 1 else scope["run"](**value))
        except Exception as error:  # noqa: BLE001 - mutants raise anything
            return ("raises", type(error).__name__)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return ("gives", result)

    return call


def finished(run: Coroutine[Any, Any, Any]) -> Any:
    """Return what a coroutine that awaits nothing gives; without an event loop, which an alarm could break."""
    try:
        run.send(None)
    except StopIteration as end:
        return end.value
    finally:
        run.close()
    raise AssertionError("a family's body must not wait")


def source_of(variant: ToolVariant) -> str:
    lines = "\n".join("    " + line for line in variant.body.splitlines())
    return f"async def run({', '.join(variant.args)}):\n{lines}\n"


def drawn(variant: ToolVariant, seed: int, count: int = NUM_DRAWS) -> list[Any]:
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        values = {name: draw(variant.draw[name], rng) for name in variant.args}
        found.append(next(iter(values.values())) if len(values) == 1 else values)
    return found


def has_type(value: Any, kind: str) -> bool:
    if kind.startswith("list["):
        return isinstance(value, list) and all(has_type(item, kind[5:-1]) for item in value)
    return type(value) is PYTHON[kind]


@pytest.mark.parametrize("name", NAMES)
def test_family_has_its_modules_name_and_several_tools(name: str) -> None:
    family = family_of(name)
    assert family.name == name
    assert 2 <= len(family.subject.split()) <= 6
    assert len(family.tools) >= 3


@pytest.mark.parametrize("template", TEMPLATES)
def test_variants_are_whole_and_repeatable(template: ToolTemplate) -> None:
    assert 1 <= template.level <= 3
    for seed in SEEDS:
        variant = template.make(random.Random(seed))
        assert variant == template.make(random.Random(seed))
        assert variant.name.isidentifier()
        assert variant.name == variant.name.lower()
        assert len(variant.name) <= 48
        assert set(variant.args.values()) | {variant.returns} <= set(TYPES)
        assert set(variant.draw) == set(variant.args)
        assert len(set(variant.does)) >= 3
        assert all(text.endswith(".") and text.isascii() for text in [*variant.does, *variant.behaviour])
        assert bool(variant.raises) == (len(variant.errors) >= 2)
        assert not variant.raises.endswith(".")
        for option in variant.options.values():
            assert type(option.set) is PYTHON[option.type] and option.set != option.default
        tree = ast.parse(source_of(variant))
        inner = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]  # the validator wants hints
        assert all(node.returns and all(argument.annotation for argument in node.args.args) for node in inner)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not names & {"open", "eval", "exec", "input", "print", "hash", "id", "__import__"}


@pytest.mark.parametrize("template", TEMPLATES)
def test_bodies_keep_their_word(template: ToolTemplate) -> None:
    for seed in SEEDS:
        variant = template.make(random.Random(seed))
        call = compiled(variant, source_of(variant))
        outcomes = [(value, call(value)) for value in [*drawn(variant, seed), *variant.edges]]
        for value, (what, result) in outcomes:
            assert what == "gives" or (result == "ValueError" and variant.raises), (variant.name, value, result)
            if what == "gives":
                assert has_type(result, variant.returns), (variant.name, value, result)
                json.dumps(result, allow_nan=False)
        given = [json.dumps(result) for _, (what, result) in outcomes if what == "gives"]
        assert len(given) >= NUM_DRAWS // 2, f"{variant.name}: too many drawn inputs are refused"
        [(_, most)] = Counter(given).most_common(1)
        limit = 0.7 if variant.returns == "bool" else 0.45
        assert most <= limit * len(given), f"{variant.name}: one answer is right for {most} of {len(given)} inputs"
        for value in variant.errors:
            assert call(value) == ("raises", "ValueError"), (variant.name, value)


@pytest.mark.parametrize("template", TEMPLATES)
def test_inputs_notice_mistakes(template: ToolTemplate) -> None:
    """At least eight in ten of the wrong versions give another outcome for some input."""
    for seed in SEEDS[:2]:
        variant = template.make(random.Random(seed))
        source = source_of(variant)
        inputs = [*variant.edges, *variant.errors, *drawn(variant, seed, 20)]
        right = [compiled(variant, source)(value) for value in inputs]
        wrong = mutate(source, random.Random(seed), 12)
        missed = [text for text in wrong if [compiled(variant, text)(value) for value in inputs] == right]
        assert len(missed) <= 0.2 * len(wrong), f"{variant.name}: {len(missed)} of {len(wrong)}, such as\n{missed[0]}"

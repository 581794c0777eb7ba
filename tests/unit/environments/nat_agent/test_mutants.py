"""Wrong versions differ in one place and in behaviour; other versions of the same code differ in their text alone."""

import ast
import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.mutants import mutate, mutate_all, plain, restate


def mutants(body: str, count: int = 50) -> set[str]:
    """All wrong versions of a function's body."""
    lines = [text.partition("\n")[2] for text in mutate(f"def f(a, b):\n    {body}\n", random.Random(0), count)]
    return {"\n".join(line.strip() for line in text.strip().split("\n")) for text in lines}


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("return a + b", {"return a - b"}),
        ("return a - b", {"return a + b"}),
        ("return a * b", {"return a + b"}),
        ("return a / b", {"return a * b"}),
        ("return a // b", {"return a * b"}),
        ("return a % b", {"return a // b"}),
        ("return a ** b", {"return a * b"}),
        ("return a < b", {"return a >= b"}),
        ("return a <= b", {"return a > b"}),
        ("return a > b", {"return a <= b"}),
        ("return a >= b", {"return a < b"}),
        ("return a == b", {"return a != b"}),
        ("return a in b", {"return a not in b"}),
        ("return a not in b", {"return a in b"}),
        ("return a and b", {"return a or b"}),
        ("return a or b", {"return a and b"}),
        ("a += b", {"a -= b"}),
        ("return 3", {"return 4"}),
        ("return 1.5", {"return 2.5"}),
        ("return True", {"return False"}),
        ("return 'ab'", {"return 'abx'"}),
        ("return -a", {"return +a"}),
        ("return not a", {"return not not a"}),
        ("return max(a, b)", {"return min(a, b)"}),
        ("return sum(a)", {"return len(a)"}),
        ("return any(a)", {"return all(a)"}),
        ("return a.upper()", {"return a.lower()"}),
        ("return a + 1", {"return a - 1", "return a + 2"}),
        ("return f'{a}-'", {"return f'{a}-x'"}),
        ("return a", set()),
        ("return None", set()),
        ("a = max\nreturn a", {"a = min"}),
        (f"return {10**100 - 1}", {f"return {10**100}"}),
        (f"return {10**100}", set()),
        (f"return 0x{'f' * 3000}", set()),
        ("return 1e100", set()),
        ("return lambda c: c + 1", {"return lambda c: c - 1", "return lambda c: c + 2"}),
    ],
)
def test_every_class_of_mistakes_is_made_and_no_other(body: str, wrong: set[str]) -> None:
    found = {text.split("\n")[0] for text in mutants(body.split("\n")[0])}
    assert found == wrong


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """Adds 1 + 2."""\n',
        "def f(a):\n    raise ValueError('a' + 1)\n",
        "def f(a):\n    if a:\n        raise ValueError('a' + 1)\n",
        "@d(1 + 2)\ndef f(a=1):\n    pass\n",
        "def f():\n    yield 1 + 2\n",
        "def f():\n    import a.b\n    from c import d\n",
        "LIMIT = 3 + 4\n",
        "class C:\n    x = 1\n",
    ],
)
def test_what_no_test_could_notice_is_left_alone(source: str) -> None:
    assert mutate(source, random.Random(0), 50) == []


def test_inner_functions_and_methods_have_their_turn_once() -> None:
    source = "def f():\n    def g():\n        return 1\n    return g\nclass C:\n    def h(self):\n        return 5\n"
    found = mutate(source, random.Random(0), 50)
    assert len(found) == len(set(found)) == 2
    assert {"return 2" in text for text in found} == {True, False}
    assert {"return 6" in text for text in found} == {True, False}


def test_lambdas_at_module_level_are_functions_too() -> None:
    found = mutate("double = lambda x, y=1 + 2: x * 2\n", random.Random(0), 50)
    assert set(found) == {f"double = lambda x, y=1 + 2: {wrong}\n" for wrong in ("x + 2", "x * 3")}
    assert len(found) == 2
    source = "f = lambda: 1\n\ndef g():\n    return [lambda: 5, 7]\n"
    for seed in range(4):
        [version] = mutate_all(source, random.Random(seed), 1)
        assert version == "f = lambda: 2\n\ndef g():\n    return [lambda: 6, 8]\n"


def test_number_of_mutants_is_bounded_and_the_seed_chooses() -> None:
    source = "def f(a, b):\n    return a + b - 1 * 2 // 3\n"
    assert len(mutate(source, random.Random(0), 3)) == 3
    assert mutate(source, random.Random(5), 3) == mutate(source, random.Random(5), 3)
    assert len({tuple(mutate(source, random.Random(seed), 3)) for seed in range(9)}) > 1
    assert mutate(source, random.Random(0), 0) == []


def test_every_mutant_differs_in_one_place_from_the_source() -> None:
    source = ast.unparse(
        ast.parse("def f(a, b):\n    c = a + 1\n    if c > b:\n        return max(c, 2)\n    return -c\n")
    )
    for text in mutate(source, random.Random(0), 50):
        changed = [
            pair for pair in zip(source.split("\n"), text.rstrip("\n").split("\n"), strict=True) if pair[0] != pair[1]
        ]
        assert len(changed) == 1, text


def test_what_hands_a_function_to_nat_is_no_place_for_a_mistake() -> None:
    source = (
        "@register_function(config_type=C)\nasync def f(config, builder):\n    tool = await builder.get_function('t')\n"
    )
    inner = "    async def run(x):\n        return x + 1\n    yield run\n"
    assert mutate(source + "    yield tool\n", random.Random(0), 50) == []
    assert all("get_function('t')" in text for text in mutate(source + inner, random.Random(0), 50))
    assert len(mutate(source + inner, random.Random(0), 50)) == 2


@pytest.mark.parametrize("seed", range(5))
def test_a_mistake_in_every_function_is_one_in_each_that_has_a_place_for_it(seed: int) -> None:
    source = "def f(a):\n    return a + 1\n\ndef g(a):\n    return a\n\ndef h(a):\n    return max(a, 3) - 5\n"
    versions = mutate_all(source, random.Random(seed), 4)
    assert versions == mutate_all(source, random.Random(seed), 4)
    wrong = {"return min(a, 3) - 5", "return max(a, 4) - 5", "return max(a, 3) + 5", "return max(a, 3) - 6"}
    assert {found.rstrip("\n").split("\n")[-1].strip() for found in versions} == wrong
    for found in versions:
        assert found.split("\n")[1].strip() in {"return a - 1", "return a + 2"}
        assert "def g(a):\n    return a\n" in found
    assert mutate_all("x = 1  # one\n", random.Random(seed), 1) == [plain("x = 1  # one\n")] == ["x = 1\n"]


def run(source: str, value: Any) -> Any:
    scope: dict[str, Any] = {}
    exec(source, scope)
    try:
        result = scope["run"](value)
        return asyncio.run(result) if asyncio.iscoroutine(result) else result
    except Exception as error:  # noqa: BLE001 - a mutant may raise anything
        return type(error), str(error)


SAMPLE = '''
def helper(n):
    """Counts."""
    return [i for i in range(n) if i % 2]


class Box:
    def __init__(self, items):
        self.items = items

    def total(self):
        return sum(self.items)


def run(n):
    if n > 40:
        raise ValueError("too large")
    def inner(k):
        """Only a docstring here."""
    return Box(helper(n)).total() if inner(n) is None else 0
'''


@given(st.integers(-3, 60))
def test_restated_source_differs_and_behaves_the_same(value: int) -> None:
    assert restate(SAMPLE) != ast.unparse(ast.parse(SAMPLE)) + "\n"
    assert run(restate(SAMPLE), value) == run(SAMPLE, value)
    assert run(restate(restate(SAMPLE)), value) == run(SAMPLE, value)


def test_restated_functions_keep_their_docstrings_and_names() -> None:
    before, after = ast.parse(SAMPLE), ast.parse(restate(SAMPLE))

    def functions(tree: ast.Module) -> list[tuple[str, str | None]]:
        found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        return [(node.name, ast.get_docstring(node)) for node in found]

    assert functions(before) == functions(after)


def test_mutants_of_shipped_references_are_really_wrong_somewhere() -> None:
    """The data set keeps only those that a recorded input tells from the reference."""
    task = next(t for t in load_tasks(["builtin:nat_agent/train"]) if t.payload["name"] == "double_number")
    inputs = [vector["input"] for vector in task.hidden["vectors"]]
    source = task.hidden["reference"]["double_number"]["source"]
    assert task.hidden["mutants"]
    for mutant in task.hidden["mutants"]:
        assert any(run(mutant["source"], value) != run(source, value) for value in inputs)

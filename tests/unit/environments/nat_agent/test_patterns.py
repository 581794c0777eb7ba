"""NAT's patterns and pytest's names, read off syntax trees."""

import ast

import pytest

from skyrl_nat.environments.nat_agent import patterns
from skyrl_nat.environments.nat_agent.patterns import count_hints, find_type_names, is_registration


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        ("@register_function(config_type=C)\nasync def f(config, builder): ...", True),
        ("@nat.register_function\nasync def f(config, builder): ...", True),
        ("@other\n@register_function(C)\nasync def f(): ...", True),
        ("@register_function(C)\ndef f(): ...", False),
        ("@unregister_function(C)\nasync def f(): ...", False),
        ("async def register_function(): ...", False),
        ("@register_function(C)\nclass F: ...", False),
    ],
)
def test_registrations_are_async_functions_with_the_decorator(source: str, verdict: bool) -> None:
    assert is_registration(ast.parse(source).body[0]) is verdict


@pytest.mark.parametrize(
    ("source", "share"),
    [
        ("x = 1", 1.0),
        ("def f(a: int) -> int: ...", 1.0),
        ("def f(a, b: int) -> int: ...", 2 / 3),
        ("def f(a): ...", 0.0),
        ("class C:\n    def f(self, a: int): ...", 0.5),
        ("def f(*, a: int, b) -> None: ...", 2 / 3),
        ("@register_function(C)\nasync def f(config: C, builder: B): ...", 1.0),
        ("@register_function(C)\nasync def f(config, builder: B):\n    def run(x: int) -> int: ...", 3 / 4),
    ],
)
def test_hints_are_shares_and_a_builder_needs_none_for_what_it_yields(source: str, share: float) -> None:
    assert count_hints([ast.parse(source)]) == pytest.approx(share)


def test_hints_are_counted_over_all_files_together() -> None:
    trees = [ast.parse("def f(a: int) -> int: ..."), ast.parse("def g(a, b): ...")]
    assert count_hints(trees) == pytest.approx(2 / 5)
    assert count_hints([]) == 1.0


def test_ids_are_those_that_pytest_would_give() -> None:
    source = (
        "def test_a(): ...\nasync def test_b(): ...\ndef helper(): ...\n"
        "class TestC:\n    def test_d(self): ...\n    def other(self): ...\n"
        "    class TestE:\n        def test_f(self): ...\n"
        "class Other:\n    def test_g(self): ...\ndef f():\n    def test_inner(): ...\n"
    )
    assert list(patterns.find_test_names(ast.parse(source))) == ["test_a", "test_b", "TestC::test_d"]


def test_type_names_are_texts_and_nothing_else() -> None:
    source = (
        "class A(Base, name='a'): ...\nclass B(Base, name=3): ...\nclass C(Base, name=b'c'): ...\n"
        "class D(Base, name=NAME): ...\nclass E(Base, other='e'): ...\n"
        f"def f():\n    class G(Base, name='g'): ...\nclass H(Base, name=0x{'f' * 4000}): ...\n"
    )
    assert sorted(find_type_names(ast.parse(source))) == ["a", "g"]

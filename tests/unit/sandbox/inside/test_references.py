"""References in their own sandbox: variants, chains, options, exceptions and mutants that never return."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

INSIDE = Path(__file__).parents[4] / "skyrl_nat/sandbox/inside"
if str(INSIDE) not in sys.path:
    sys.path.append(str(INSIDE))

import references  # noqa: E402

REFERENCES = {
    "scale": {"source": "async def run(x):\n    return x * config.factor\n", "config": {"factor": 2}},
    "join": {"source": "async def run(a, b):\n    return a + b\n", "config": {}},
    "twice": {"source": "async def run(x):\n    return await scale.ainvoke(await scale.ainvoke(x))\n", "config": {}},
}


def ask(*calls: tuple[Any, ...], variants: tuple[dict[str, str], ...] = ({},)) -> list[dict[str, Any]]:
    asked = [{"chain": list(chain), "input": value} for chain, value in calls]
    arguments = {"references": REFERENCES, "variants": list(variants), "calls": asked}
    return list(references.answer(arguments))


def body(text: str) -> tuple[dict[str, str], ...]:
    return ({"scale": f"async def run(x):\n    {text}\n"},)


def test_one_argument_comes_bare_and_several_by_name() -> None:
    assert [report["output"] for report in ask((["scale"], 4), (["join"], {"a": "x", "b": "y"}))] == [8, "xy"]


def test_functions_use_each_other_and_chains_hand_on() -> None:
    first, second = ask((["twice"], 3), (["scale", "twice", "scale"], 1))
    assert (first["output"], second["output"]) == (12, 16)


def test_options_of_a_call_replace_those_of_the_task() -> None:
    arguments = {"references": REFERENCES, "variants": [{}]}
    calls = [{"chain": ["scale"], "input": 3, "options": {"factor": 10}}, {"chain": ["scale"], "input": 3}]
    assert [report["output"] for report in references.answer({**arguments, "calls": calls})] == [30, 6]


def test_variants_replace_one_source_and_those_who_use_it_see_it() -> None:
    reports = ask((["scale"], 3), (["twice"], 3), variants=({}, *body("return x + 1")))
    assert [(r["variant"], r["call"], r["output"]) for r in reports] == [(0, 0, 6), (0, 1, 12), (1, 0, 4), (1, 1, 5)]


@pytest.mark.parametrize(
    ("text", "raises", "message"),
    [
        ("raise ValueError('no')", "ValueError", "no"),
        ("raise type('Own', (KeyError,), {})('k')", "KeyError", "'k'"),
        ("return 1 / 0", "ZeroDivisionError", "division by zero"),
        ("raise SystemExit(3)", "SystemExit", "3"),
        ("raise ValueError('m' * 999)", "ValueError", "m" * 200),
        ("return nobody", "NameError", "name 'nobody' is not defined"),
    ],
)
def test_exceptions_are_answers_by_their_builtin_class(text: str, raises: str, message: str) -> None:
    [report] = ask((["scale"], 1), variants=body(text))
    assert (report["raises"], report["message"]) == (raises, message)
    assert "output" not in report


def test_broken_sources_and_unknown_names_are_answers_too() -> None:
    [broken] = ask((["scale"], 1), variants=({"scale": "async def run(x"},))
    assert broken["raises"] == "SyntaxError"
    assert ask((["nobody"], 1))[0]["raises"] == "KeyError"


def test_one_that_never_returns_is_stopped_and_the_next_call_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "CALL_TIMEOUT_S", 0.1)
    started = time.monotonic()
    loop, good = ask((["scale"], 1), (["join"], {"a": 1, "b": 2}), variants=body("while True:\n        pass"))
    assert (loop["raises"], loop["message"]) == ("TimeoutError", "no answer in 0.1 s")
    assert good["output"] == 3
    assert time.monotonic() - started < 2.0


def test_tuples_become_lists_and_other_types_are_foreign() -> None:
    assert ask((["scale"], 1), variants=body("return (x, (x,))"))[0]["output"] == [1, [1]]
    assert ask((["scale"], 1), variants=body("return {x}"))[0]["output"] == {"$foreign": "set"}

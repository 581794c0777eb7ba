"""What leaves a job: plain JSON of exact types and bounded size, whatever the policy's objects pretend."""

import json
import sys
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

INSIDE = Path(__file__).parents[4] / "skyrl_nat/sandbox/inside"
if str(INSIDE) not in sys.path:
    sys.path.append(str(INSIDE))

from values import MAX_DEPTH, MAX_INT_BITS, MAX_VALUE_CHARS, describe, encode, error_report  # noqa: E402

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=9,
)  # fmt: skip


class Liar(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class Colour(IntEnum):
    red = 1


@given(JSON)
def test_plain_values_leave_unchanged(value: Any) -> None:
    encoded = encode(value)
    assert encoded == value
    assert json.loads(json.dumps(encoded)) == value


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Liar(3), "Liar"),
        (Colour.red, "Colour"),
        (float("nan"), "float"),
        (float("-inf"), "float"),
        ((1, 2), "tuple"),
        ({1, 2}, "set"),
        (b"x", "bytes"),
        ({1: "a"}, "dict"),
        (2**MAX_INT_BITS, "int"),
        (type("S", (str,), {})("x"), "S"),
        (type("D" * 99, (dict,), {})(), "D" * 60),
    ],
)
def test_what_only_looks_like_json_is_foreign(value: Any, name: str) -> None:
    assert encode(value) == {"$foreign": name}
    assert encode([value, 1]) == [{"$foreign": name}, 1]
    assert encode({"a": value}) == {"a": {"$foreign": name}}


def test_largest_integer_is_one_bit_below_the_limit() -> None:
    assert encode(2 ** (MAX_INT_BITS - 1) - 1) == 2 ** (MAX_INT_BITS - 1) - 1
    assert encode(-(2**MAX_INT_BITS)) == {"$foreign": "int"}


def test_depth_and_length_are_bounded() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert encode(deep) == deep
    assert "$foreign" in json.dumps(encode([deep]))
    loop: list[Any] = []
    loop.append(loop)
    assert "$foreign" in json.dumps(encode(loop))
    assert encode("x" * (MAX_VALUE_CHARS - 2)) == "x" * (MAX_VALUE_CHARS - 2)
    assert encode("x" * MAX_VALUE_CHARS) == {"$foreign": "longer than allowed"}
    assert encode([0] * MAX_VALUE_CHARS) == {"$foreign": "longer than allowed"}


def test_exceptions_are_described_even_where_their_text_raises() -> None:
    class RudeError(ValueError):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    assert describe(RudeError()) == "RudeError: "
    assert describe(ValueError("x" * 999)) == "ValueError: " + "x" * 388


def test_report_names_every_class_that_the_exception_is_one_of() -> None:
    class OwnError(KeyError):
        pass

    report = error_report(OwnError("k"))
    assert report["raised"] == ["OwnError", "KeyError", "LookupError", "Exception", "BaseException", "object"]
    assert report["error"] == "OwnError: 'k'"


def test_pydantic_refusal_is_not_the_tools_own() -> None:
    class ValidationError(ValueError):
        pass

    assert error_report(ValidationError("bad"))["raised"] == ["ValidationError"]

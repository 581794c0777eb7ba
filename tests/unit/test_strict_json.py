"""Only what every reader of JSON takes."""

import json

import pytest

from skyrl_nat.strict_json import parse_json, parse_untrusted


def test_values_come_as_they_are() -> None:
    assert parse_json('{"a": [1, 2.5, null, true, "x"]}') == {"a": [1, 2.5, None, True, "x"]}
    assert parse_json(b"-0") == 0


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "", "{", "1 2"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no JSON|Expecting|Extra data"):
        parse_json(text)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": 1, "a": 1}', b'[{"b": {"c": 1, "c": 2}}]', b"[1e999]", b"[-1e999]", b"NaN", b"[Infinity]", b"\xff",
        b'["\\ud800"]', b'{"\\udfff": 1}', b"[" * 5, b"[[[[1]]]]", b"[" * 100_000, b"", b"\xef\xbb\xbf1",
        b"9" * 5000,
    ],
)  # fmt: skip
def test_text_that_readers_take_differently_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        parse_untrusted(text, max_depth=3)


@pytest.mark.parametrize("text", [b"[[[1]]]", b'{"a": [{"b": 1e308}]}', b'"\\ud83d\\ude00"', b"-0.0", b"null"])
def test_other_text_is_read_as_python_reads_it(text):
    assert parse_untrusted(text, max_depth=3) == json.loads(text)

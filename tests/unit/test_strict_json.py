"""Only what every reader of JSON takes."""

import pytest

from skyrl_nat.strict_json import parse_json


def test_values_come_as_they_are() -> None:
    assert parse_json('{"a": [1, 2.5, null, true, "x"]}') == {"a": [1, 2.5, None, True, "x"]}
    assert parse_json(b"-0") == 0


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "", "{", "1 2"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no JSON|Expecting|Extra data"):
        parse_json(text)

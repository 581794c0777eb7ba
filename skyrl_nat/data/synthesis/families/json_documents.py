"""Documents in JSON."""

import random
from typing import Any

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_LEAF = {
    "kind": "choice",
    "values": ["1", "-2", "30", "0", '"red"', '"x y"', '""', '"7"', "true", "false", "null", "[]", "{}"],
}
_AROUND = ["{p}", "[[{p}]]", '{{"a": {{"b": {p}}}}}', '[{{"a": [{{"b": {p}}}]}}]']
_NUMBERS = {"kind": "integer", "low": -9, "high": 40}
_PARSE = "import json\n\ntry:\n    document = json.loads(text)\nexcept json.JSONDecodeError:\n    {0}\n"


def _object(inner: dict[str, Any]) -> dict[str, Any]:
    """Return a generator of objects with two or three members."""
    patterns = ('{{"b": {p}, "a": {q}}}', '{{"a": {p}, "c": {q}, "B": {r}}}', '{{ "c":{p},"b" : {q}, "a1": {r} }}')
    parts = dict.fromkeys("pqr", inner)
    return {"kind": "one_of", "of": [{"kind": "template", "pattern": p, "parts": parts} for p in patterns]}


def _nested(leaf: dict[str, Any]) -> dict[str, Any]:
    """Return a generator of documents one to four levels deep."""
    low = {"kind": "template", "pattern": "[{p}, {q}]", "parts": {"p": leaf, "q": leaf}}
    middle = {"kind": "one_of", "of": [leaf, low, _object({"kind": "one_of", "of": [leaf, low]})]}
    top = {"kind": "template", "pattern": "[{p}, {q}, {r}]", "parts": {"p": middle, "q": leaf, "r": middle}}
    return {"kind": "one_of", "of": [_object(middle), _object(middle), top, top, low]}


def _keys(rng: random.Random) -> ToolVariant:
    order, rule, code = rng.choice(
        [
            ("as_written", "in the order of the document", "[*document]"),
            ("sorted", "in alphabetical order, upper case before lower case", "sorted(document)"),
            ("reversed", "from the last to the first of the document", "[*document][::-1]"),
        ]
    )
    name, what, test, rich = rng.choice(
        [
            ("lists", "an array", "isinstance(document[key], list)", ["[]", "[1]"]),
            ("texts", "a string", "isinstance(document[key], str)", ['""', '"[]"']),
            ("numbers", "a number", "type(document[key]) in (int, float)", ["0", "2.5"]),
        ]
    )
    return ToolVariant(
        name=f"json_keys_of_{name}_{order}",
        args={"text": "str"},
        returns="list[str]",
        does=(
            f"Return the keys of the JSON object whose value is {what}, {rule}.",
            f"Parse the text as JSON and list, {rule}, those of its top-level keys that have {what} as their value.",
            f"Which members of the JSON object are {what}? List their keys {rule}; what lies deeper does not count.",
        ),
        behaviour=["true and false are no numbers.", "No such key gives an empty list."],
        body=(
            _PARSE.format("document = None")
            + "if not isinstance(document, dict):\n    raise ValueError('no JSON object')\n"
            + f"return [key for key in {code} if {test}]"
        ),
        draw={"text": _object({"kind": "choice", "values": [*3 * rich, "[2]", "{}", "null", "true", '"t"', "7"]})},
        edges=["{}", '{"z": [], "y": "", "x": [2], "B": "q", "w": 1, "v": 0.5, "u": false, "C": 3}'],
        raises="the text is no JSON object",
        errors=["", "[1]", "{a: 1}", '"a"'],
    )


def _sum(rng: random.Random) -> ToolVariant:
    default, value = rng.choice([(0, 1), (0, 5), (1, 10), (1, -3)])
    key = rng.choice(["n", "qty"])
    name, what, how, code = rng.choice(
        [
            ("sum", "sum of the", "Add up the", "sum(numbers)"),
            ("maximum", "largest of the", "Find the largest of the", "max(numbers, default=0)"),
        ]
    )
    return ToolVariant(
        name=f"json_{name}_of_{key}_missing_{str(value).replace('-', 'minus_')}",
        args={"text": "str"},
        returns="int",
        does=(
            f"The text is a JSON array of objects; return the {what} whole numbers that they have under '{key}', where "
            "an object without it counts as `missing`.",
            f"{how} values of '{key}' in a JSON array of objects, with `missing` for each object that lacks this key.",
            f"Parse a JSON array, take from each of its objects the whole number called '{key}' (`missing` where there "
            f"is none), and give the {what} numbers taken.",
        ),
        behaviour=["An empty array gives 0."],
        body=(
            _PARSE.format("document = None")
            + "if not isinstance(document, list):\n    raise ValueError('no JSON array')\n"
            + f"numbers = [item.get({key!r}, config.missing) for item in document]\nreturn {code}"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": f'[{{{{"{key}": {{a}}}}}}, {{{{"id": 4, "{key}": {{b}}}}}}{{rest}}]',
                "parts": {
                    "a": _NUMBERS,
                    "b": {**_NUMBERS, "low": -20},
                    "rest": {"kind": "choice", "values": ["", ', {"id": 7}', ', {"N": 9}, {}', f', {{"{key}": 50}}']},
                },
            }
        },
        edges=["[]", "[{}]", f'[{{"{key}": -8}}, {{"{key}x": 3}}]', f'[{{"{key}": -8}}]'],
        raises="the text is no JSON array",
        errors=["", "{}", "[", "3"],
        options={"missing": Option(type="int", default=default, set=value)},
    )


def _depth(rng: random.Random) -> ToolVariant:
    name, what, test = rng.choice(
        [
            ("arrays", "arrays", "isinstance(value, list)"),
            ("objects", "objects", "isinstance(value, dict)"),
            ("containers", "arrays and objects", "isinstance(value, (list, dict))"),
        ]
    )
    bad = rng.choice([-1, 0])
    return ToolVariant(
        name=f"json_depth_of_{name}_{'or_zero' if bad == 0 else 'or_minus_one'}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return the largest number of {what} that lie around one place of the JSON document.",
            f"Give the depth of the JSON document, counting only {what}: the largest number of them that are nested in "
            "each other.",
            f"Follow every path from the top of the JSON document inward, count the {what} on it, and return the "
            "highest count.",
        ),
        behaviour=[
            "The outermost one counts, and so does an empty one; a document with none of them gives 0.",
            f"A text that is not JSON gives {bad}.",
        ],
        body=(
            _PARSE.format(f"return {bad}")
            + "\ndef depth(value: object) -> int:\n"
            + "    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []\n"
            + f"    return max(map(depth, inner), default=0) + ({test})\n\n"
            + "return depth(document)"
        ),
        draw={
            "text": {
                "kind": "one_of",
                "of": [
                    *({"kind": "template", "pattern": pattern, "parts": {"p": _nested(_LEAF)}} for pattern in _AROUND),
                    {"kind": "choice", "values": ["3", "[1, 2", "null", '{"a": {"b": {"c": {}}}}', "[[[3]]]", "[7]"]},
                ],
            }
        },
        edges=["", "7", "[]", "{}", '{"a": [{"b": []}]}', "[[[[]]]]", "]"],
    )


def _flatten(rng: random.Random) -> ToolVariant:
    mark, joint = rng.choice([("dot", "."), ("slash", "/"), ("colon", ":")])
    order, rule, code = rng.choice(
        [
            ("as_written", "in the order of the document", "lines(document, '')"),
            ("sorted", "sorted by character codes", "sorted(lines(document, ''))"),
        ]
    )
    return ToolVariant(
        name=f"json_paths_with_{mark}_{order}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Flatten the JSON document: one line 'path=value' per value that is no array or object, {rule}, where the "
            f"path has '{joint}' between its steps.",
            "Return a line for each string, number, true, false and null of the JSON document: the keys and positions "
            f"that lead to it, joined by '{joint}', then '=' and the value. The lines are {rule}.",
            f"List all leaves of the JSON document {rule}, as lines 'a{joint}0{joint}b=value' for the value under key "
            "b of the first item of the array under key a.",
        ),
        behaviour=[
            "Array items are counted from 0; a value is written as in JSON, so strings have double quotes.",
            "A single value as the document gives '=' and the value.",
            "Empty arrays and objects give no line; lines are joined by a line break; a text that is not JSON gives "
            "the empty string.",
        ],
        body=(
            _PARSE.format("return ''")
            + "\ndef lines(value: object, path: str) -> list[str]:\n"
            + "    if not isinstance(value, (dict, list)):\n"
            + "        return [f'{path}={json.dumps(value)}']\n"
            + "    items = value.items() if isinstance(value, dict) else enumerate(value)\n"
            + f"    return [line for key, item in items for line in lines(item, f'{{path}}{joint}{{key}}' if path "
            "else str(key))]\n\n" + f"return '\\n'.join({code})"
        ),
        draw={"text": _nested(_LEAF)},
        edges=["", "[]", "5", '{"b": [true, {"c": "x=y"}], "a": null}', "[[1], [[2, 3]]]"],
    )


def _rewrite(rng: random.Random) -> ToolVariant:
    order, rule, is_sorted = rng.choice(
        [
            ("sorted", "The keys of every object are sorted by character codes.", True),
            ("as_written", "Keys keep their order.", False),
        ]
    )
    name, layout, code = rng.choice(
        [
            ("compact", "without any white space between its parts", "separators=(',', ':')"),
            ("spaced", "on one line, with one blank after each ',' and each ':' between its parts", "indent=None"),
            (
                "wide",
                "on one line, with one blank after each ',' and one on each side of each ':' between its parts",
                "separators=(', ', ' : ')",
            ),
        ]
    )
    return ToolVariant(
        name=f"json_{name}_keys_{order}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Write the JSON document {layout}.",
            f"Parse the text as JSON and return the same document as a text {layout}.",
            f"Return the JSON document in a fixed layout: {layout}; strings inside are not touched.",
        ),
        behaviour=[
            rule,
            "A text that is not JSON is returned as it is. Numbers are whole, and strings are plain ASCII.",
            "No white space stands at the start, at the end, or right inside a bracket; an empty array is '[]'.",
        ],
        body=_PARSE.format("return text") + f"return json.dumps(document, sort_keys={is_sorted}, {code})",
        draw={"text": _nested(_LEAF)},
        edges=["", "{b: 1}", ' { "b" : [ 1 ,2], "a":{"d":" , ", "c":{}} } ', "[ ]"],
        laws=[{"kind": "idempotent"}],
    )


def _count(rng: random.Random) -> ToolVariant:
    name, what, test = rng.choice(
        [
            ("strings", "strings (keys do not count)", "isinstance(value, str)"),
            ("numbers", "numbers (true and false are none)", "type(value) in (int, float)"),
            ("nulls", "nulls", "value is None"),
            ("booleans", "values true and false", "isinstance(value, bool)"),
            ("empties", "empty arrays, empty objects and empty strings", "value in ([], {}, '')"),
        ]
    )
    rich = {"strings": '"s"', "numbers": "4", "nulls": "null", "booleans": "true", "empties": '""'}[name]
    return ToolVariant(
        name=f"json_number_of_{name}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Count the {what} anywhere in the JSON document.",
            f"Return how many {what} the JSON document has on all levels together.",
            f"Walk through the whole JSON document, into every array and object, and count the {what}.",
        ),
        behaviour=["The document itself counts if it is one.", "A text that is not JSON gives -1."],
        body=(
            _PARSE.format("return -1")
            + "\ndef count(value: object) -> int:\n"
            + "    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []\n"
            + f"    return sum(map(count, inner)) + (1 if {test} else 0)\n\n"
            + "return count(document)"
        ),
        draw={"text": _nested({"kind": "choice", "values": [*_LEAF["values"], *3 * [rich]]})},
        edges=["", "[", rich, f"[{rich}, [{rich}, 1, true, null]]", '{"a": {"b": "", "c": [[], 2.5]}}'],
    )


FAMILY = Family(
    name="json_documents",
    subject="documents in JSON",
    tools=(
        ToolTemplate(level=1, make=_keys),
        ToolTemplate(level=2, make=_sum),
        ToolTemplate(level=3, make=_depth),
        ToolTemplate(level=3, make=_flatten),
        ToolTemplate(level=1, make=_rewrite),
        ToolTemplate(level=3, make=_count),
    ),
)

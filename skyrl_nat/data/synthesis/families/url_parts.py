"""Parts of web addresses."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_FORM = "A URL is 'scheme://host:port/path?query#fragment', where everything behind the host may be missing."
_URL = {
    "kind": "template",
    "pattern": "{scheme}://{host}{port}{path}{query}{fragment}",
    "parts": {
        "scheme": {"kind": "choice", "values": ["http", "https", "HTTPS", "ftp"]},
        "host": {"kind": "choice", "values": ["web.org", "A.Example.com", "localhost", "b.net", "x-1.de"]},
        "port": {"kind": "choice", "values": ["", ":80", ":443", ":8080", ":21"]},
        "path": {"kind": "choice", "values": ["", "/", "/a/b", "/docs/2/x.html", "/a//c/", "/Q:1/z"]},
        "query": {"kind": "choice", "values": ["", "?b=2&a=1", "?q=x?y", "?lang=en&q=/up&b=", "?a=1&a=3=4&lang"]},
        "fragment": {"kind": "choice", "values": ["", "#top", "#s?2#3", "#/x"]},
    },
}


def _part(rng: random.Random) -> ToolVariant:
    name, what, where, code = rng.choice(
        [
            ("fragment", "fragment", "all that follows the first '#'", "text.partition('#')[2]"),
            (
                "query",
                "query",
                "all that follows the first '?' before the first '#' (or before the end)",
                "text.partition('#')[0].partition('?')[2]",
            ),
            (
                "path",
                "path with the '/' at its start",
                "all from the first '/' behind '://' on, but only up to the first '?' or '#'",
                "''.join(re.split('[?#]', text)[0].partition('://')[2].partition('/')[1:])",
            ),
            (
                "host_and_port",
                "host with the port, if there is one",
                "all behind '://' up to the first '/', '?' or '#'",
                "re.split('[/?#]', text.partition('://')[2])[0]",
            ),
        ]
    )
    imports = "import re\n\n" if "re." in code else ""
    case, how, tail = rng.choice([("as_is", "as it is written", ""), ("small", "in lower case", ".lower()")])
    return ToolVariant(
        name=f"url_{name}_{case}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the {what} of a URL, {how}: {where}.",
            f"Give {where}, {how}; in a URL this is the {what}.",
            f"Cut the {what} out of a URL, which is {where}, and return it {how}.",
        ),
        behaviour=[_FORM, "What is missing gives the empty string."],
        body=f"{imports}return {code}{tail}",
        draw={
            "text": {
                **_URL,
                "parts": {
                    **_URL["parts"],
                    "path": {"kind": "choice", "values": ["", "/", "/A/b", "/Docs/2/x.html", "/a//c/", "/Q:1/z"]},
                    "query": {"kind": "choice", "values": ["", "?b=2&a=1", "?Q=x?y", "?lang=EN&q=/up", "?a=1"]},
                    "fragment": {"kind": "choice", "values": ["", "#Top", "#s?2#3", "#/X://", "#end"]},
                },
            }
        },
        edges=["", "http://a.b?c/d", "http://a.B#X?y", "no url?Z#Q", "x://y/Z/://w"],
    )


def _value(rng: random.Random) -> ToolVariant:
    key = rng.choice(["q", "lang", "page"])
    which, place = rng.choice([("first", 0), ("last", -1)])
    default, fallback = rng.choice([("", "none"), ("", "-")])
    return ToolVariant(
        name=f"{which}_query_value_of_{key}_or_{'none' if fallback == 'none' else 'dash'}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the value that the parameter '{key}' has in the URL's query; `fallback` without such a parameter.",
            f"Look up '{key}' among the parameters behind the '?' of a URL, and return `fallback` where it is missing.",
            f"The query of a URL has parameters 'name=value' with '&' between them; give the value of the one named "
            f"'{key}', or `fallback`.",
        ),
        behaviour=[
            "The query is what follows the first '?' before the first '#', or before the end; '&' separates "
            "parameters.",
            f"If '{key}' occurs several times, the {which} one counts. Only the first '=' of a parameter separates.",
            "A parameter without '=' has the empty value; case counts and nothing is decoded.",
        ],
        body=(
            "query = text.partition('#')[0].partition('?')[2]\n"
            "pairs = [part.partition('=') for part in query.split('&')]\n"
            f"found = [pair[2] for pair in pairs if pair[0] == {key!r}]\n"
            f"return found[{place}] if found else config.fallback"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "http://web.org/{path}?{query}{end}",
                "parts": {
                    "path": {"kind": "choice", "values": ["", "a", f"{key}=7"]},
                    "query": {
                        "kind": "words",
                        "values": [f"{key}={v}" for v in ("a", "b=c", "", "d?", "12")]
                        + ["x=1", key, f"{key}x=3", "Q=2"],
                        "min": 2,
                        "max": 5,
                        "separator": "&",
                    },
                    "end": {"kind": "choice", "values": ["", f"#{key}=z", f"#?{key}=y&{key}=w"]},
                },
            }
        },
        edges=["", f"?{key}=1&{key}=2=3&{key}=4", f"http://a#b?{key}=5", f"a?b&{key}", f"{key}=9"],
        options={"fallback": Option(type="str", default=default, set=fallback)},
    )


def _normal(rng: random.Random) -> ToolVariant:
    order, how, code = rng.choice(
        [
            (
                "sorted",
                "The parts of the query, between which '&' stands, are sorted by character codes.",
                "'&'.join(sorted(query[1:].split('&')))",
            ),
            ("unsorted", "The query stays as it is.", "query[1:]"),
        ]
    )
    mark, what, tail = rng.choice(
        [
            ("without_fragment", "The fragment and its '#' are dropped.", ""),
            ("with_fragment", "The fragment stays, but loses every '#' at its end.", " + fragment.rstrip('#')"),
        ]
    )
    return ToolVariant(
        name=f"normal_url_{order}_{mark}",
        args={"text": "str"},
        returns="str",
        does=(
            "Bring a URL into its normal form: scheme and host in lower case, no port that is the default one, and '/' "
            "as the path where it is missing.",
            "Return the URL with a lower-case scheme and host, without the port if that is what the scheme implies, "
            "and with the path '/' where there is none.",
            "Write the URL such that equal addresses look equal: lower the case of scheme and host, drop the default "
            "port, and put '/' in place of a missing path.",
        ),
        behaviour=[
            "The default ports are 80 for http and 443 for https.",
            how + " An empty query goes, together with its '?'. " + what,
            "A URL is letters, '://', a host without any of ':/?#', maybe ':' and digits, maybe a path from '/' on, "
            "maybe a query from '?' on, maybe a fragment from '#' on; anything else is returned unchanged.",
        ],
        body=(
            "import re\n\n"
            "found = re.fullmatch(r'([A-Za-z]+)://([^:/?#]+)(:[0-9]+)?(/[^?#]*)?(\\?[^#]*)?(#.*)?', text)\n"
            "if not found:\n    return text\n"
            "scheme, host, port, path, query, fragment = [part or '' for part in found.groups()]\n"
            "if (scheme.lower(), port) in (('http', ':80'), ('https', ':443')):\n    port = ''\n"
            f"query = {code}\n"
            "start = f\"{scheme.lower()}://{host.lower()}{port}{path or '/'}\"\n"
            f"return start + ('?' + query if query else ''){tail}"
        ),
        draw={"text": _URL},
        edges=[
            "",
            "http://A:80",
            "HTTPS://b:443/?#",
            "http://c:443?y&x#F",
            "a b://c",
            "https://d:80/E?z=1&Z=2#?a",
            "//e",
        ],
        laws=[{"kind": "idempotent"}],
    )


def _port(rng: random.Random) -> ToolVariant:
    name, ports = rng.choice(
        [
            ("web", {"http": 80, "https": 443}),
            ("files", {"ftp": 21, "http": 8000}),
            ("sockets", {"http": 81, "https": 444, "ftp": 22}),
        ]
    )
    missing = rng.choice([0, -1])
    listed = ", ".join(f"{port} for {scheme}" for scheme, port in ports.items())
    return ToolVariant(
        name=f"port_by_{name}_defaults_or_{'zero' if missing == 0 else 'minus_one'}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return the port of a URL: the number behind the host's ':', otherwise the scheme's default ({listed}), "
            f"otherwise {missing}.",
            f"Which port does the URL lead to? It is the one that is written in it; without one it is {listed}, and "
            f"{missing} for any other scheme.",
            f"Give the number that follows ':' after the host of the URL. If there is none, decide by the scheme: "
            f"{listed}, everything else {missing}.",
        ),
        behaviour=[
            _FORM + " The case of the scheme does not count.",
            "A host has none of the characters ':/?#', and a port is one or more digits right behind it and its ':'.",
            f"A text that does not begin with letters and '://' and a host gives {missing}.",
        ],
        body=(
            "import re\n\n"
            "found = re.match(r'([A-Za-z]+)://[^:/?#]+(?::([0-9]+))?', text)\n"
            f"if not found:\n    return {missing}\n"
            "scheme, port = found.groups()\n"
            f"return int(port) if port else {ports}.get(scheme.lower(), {missing})"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{scheme}://{host}{port}{rest}",
                "parts": {
                    **_URL["parts"],
                    "scheme": {"kind": "choice", "values": ["http", "https", "HTTP", "ftp", "FTP", "ws"]},
                    "port": {"kind": "choice", "values": ["", "", ":8080", ":21", ":5000"]},
                    "rest": {"kind": "choice", "values": ["", "/a:9", "/", "?b=:7", "#:6"]},
                },
            }
        },
        edges=["", "web.org:80", "ws://a", "HTTPS://b/", "ftp://c:0", "://d:5", "Ftp://e/x:1", "http://g", "http://:1"],
    )


def _segment(rng: random.Random) -> ToolVariant:
    name, place, ordinal = rng.choice(
        [("first", 0, "first"), ("second", 1, "second"), ("last", -1, "last"), ("second_last", -2, "second last")]
    )
    count = place + 1 if place >= 0 else -place
    few = f"fewer than {count} of them" if count > 1 else "none of them"
    return ToolVariant(
        name=f"{name}_segment_of_path",
        args={"path": "str"},
        returns="str",
        does=(
            f"Return the {ordinal} segment of the path, where segments are what stands between slashes.",
            f"Split the path at every '/', leave out empty pieces, and return the {ordinal} of the others.",
            f"Name the {ordinal} of the non-empty parts into which '/' divides the path.",
        ),
        behaviour=[
            "Empty segments do not count. A '?' ends the path: it and all that follows are ignored.",
            f"A path with {few} gives '-'.",
        ],
        body=(
            "segments = [part for part in path.partition('?')[0].split('/') if part]\n"
            f"return segments[{place}] if len(segments) > {count - 1} else '-'"
        ),
        draw={
            "path": {
                "kind": "words",
                "values": ["", "a", "docs", "x.html", "v2", "B c", "img", "q?r=1", "end"],
                "min": 3,
                "max": 6,
                "separator": "/",
            }
        },
        edges=["", "/", "one", "/one/two/", "a//b?c/d/e", "/x/y/z"],
    )


def _encode(rng: random.Random) -> ToolVariant:
    name, safe, listed = rng.choice(
        [
            ("dash_and_dot", "-.", "'-' and '.'"),
            ("tilde_and_line", "~_", "'~' and '_'"),
            ("slash_and_colon", "/:", "'/' and ':'"),
        ]
    )
    blank_name, blank = rng.choice([("plus", "+"), ("percent", "%20")])
    return ToolVariant(
        name=f"encode_but_{name}_blank_as_{blank_name}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Encode the text for a URL: letters and digits and {listed} stay, a blank becomes '{blank}', and every "
            "other character becomes '%' and the hexadecimal code of each of its UTF-8 bytes.",
            f"Replace each blank by '{blank}', and each other character that is no letter, no digit and none of "
            f"{listed}, by its bytes in UTF-8, each written as '%' and two hexadecimal digits.",
            f"Percent-encode the text. Not changed are letters, digits, {listed}; a blank is written as '{blank}'; the "
            "rest is written byte by byte (UTF-8) as %XX.",
        ),
        behaviour=["Letters are A to Z and a to z, digits are 0 to 9.", "Hexadecimal digits are in upper case."],
        body=(
            "parts = []\n"
            "for c in text:\n"
            f"    if c.isascii() and (c.isalnum() or c in {safe!r}):\n"
            "        parts.append(c)\n"
            "    elif c == ' ':\n"
            f"        parts.append({blank!r})\n"
            "    else:\n"
            "        parts += [f'%{byte:02X}' for byte in c.encode()]\n"
            "return ''.join(parts)"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": ["Red", "a/b", "50%", "x-y.z", "caf\u00e9", "~me_", "1:2", "n\u00f6", "&=?", "\u20ac 5", "+"],
                "min": 1,
                "max": 4,
            }
        },
        edges=["", " ", "-._~/:", "\u00e9\u20acA", "\tk\n"],
    )


FAMILY = Family(
    name="url_parts",
    subject="parts of web addresses",
    tools=(
        ToolTemplate(level=1, make=_part),
        ToolTemplate(level=2, make=_value),
        ToolTemplate(level=3, make=_normal),
        ToolTemplate(level=2, make=_port),
        ToolTemplate(level=1, make=_segment),
        ToolTemplate(level=2, make=_encode),
    ),
)

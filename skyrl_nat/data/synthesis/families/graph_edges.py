"""Graphs, written as a text of edges."""

import random

from skyrl_nat.data.synthesis.family import Family, ToolTemplate, ToolVariant

_LINKS = [("dash", "-"), ("arrow", ">"), ("colon", ":"), ("slash", "/")]
_FORM = (
    "A node's name is one or more letters a to z; an edge is two names with '{0}' between them, and edges are "
    "separated by white space."
)


def _edges(link: str, pairs: list[str], low: int, high: int) -> dict[str, object]:
    """Return a generator of texts of edges, each given as two letters."""
    values = [link.join(pair) for pair in pairs]
    return {"kind": "words", "values": values, "min": low, "max": high}


def _parse(link: str) -> str:
    return f"import re\n\nedges = re.findall(r'([a-z]+){link}([a-z]+)', text)\n"


def _flip(rng: random.Random) -> ToolVariant:
    name, link = rng.choice(_LINKS)
    order, rule, code = rng.choice(
        [
            ("in_order", "The edges keep their order.", "edges"),
            ("from_last", "The last edge comes first, and so on.", "edges[::-1]"),
        ]
    )
    return ToolVariant(
        name=f"flip_{name}_edges_{order}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Turn every edge around: 'a{link}b' becomes 'b{link}a'.",
            f"Return the graph with the two names of each edge exchanged, so that 'x{link}yy' is 'yy{link}x'.",
            f"Reverse the direction of all edges, which are written like 'from{link}to'.",
        ),
        behaviour=[
            _FORM.format(link),
            rule + " They are joined by one blank, duplicates stay, and no edge gives the empty string.",
        ],
        body=_parse(link) + f"return ' '.join(f'{{b}}{link}{{a}}' for a, b in {code})",
        draw={"text": _edges(link, [a + b for a in "abcd" for b in "bcde"] + ["ab", "ca"], 1, 6)},
        edges=["", f"node{link}other x{link}x", f"a{link}b a{link}b c{link}aa"],
        laws=[{"kind": "involution"}],
    )


def _degrees(rng: random.Random) -> ToolVariant:
    name, link = rng.choice(_LINKS)
    side, what, code = rng.choice(
        [
            (
                "all",
                "edges it is an end of (an edge from a node to itself counts twice)",
                "[*starts, *ends].count(node)",
            ),
            ("outgoing", "edges start at it (the left name is the start)", "starts.count(node)"),
            ("incoming", "edges end at it (the right name is the end)", "ends.count(node)"),
        ]
    )
    return ToolVariant(
        name=f"{side}_degrees_of_{name}_graph",
        args={"text": "str"},
        returns="str",
        does=(
            f"For every node in alphabetical order give 'node=n', where n is how many {what}.",
            f"Count for each node how many {what}, and write 'node=count' entries, sorted by node.",
            f"List all nodes of the graph from a to z, each as its name, '=' and the number that tells how many "
            f"{what}.",
        ),
        behaviour=[
            _FORM.format(link),
            "Each name in any edge is a node, also where its number is 0; an edge that is written twice counts twice.",
            "Entries are joined by one blank; no edge gives the empty string.",
        ],
        body=(
            _parse(link)
            + "starts, ends = [a for a, _ in edges], [b for _, b in edges]\n"
            + f"return ' '.join(f'{{node}}={{{code}}}' for node in sorted({{*starts, *ends}}))"
        ),
        draw={"text": _edges(link, [a + b for a in "abcd" for b in "abcd"], 2, 7)},
        edges=["", f"b{link}a", f"zz{link}zz a{link}zz a{link}zz"],
    )


def _neighbours(rng: random.Random) -> ToolVariant:
    name, link = rng.choice(_LINKS)
    side, what, other, code = rng.choice(
        [
            (
                "after",
                "to which an edge leads from it",
                "ends of edges that start at it",
                "{b for a, b in edges if a == node}",
            ),
            (
                "before",
                "from which an edge leads to it",
                "starts of edges that end at it",
                "{a for a, b in edges if b == node}",
            ),
            (
                "both_ways",
                "that share an edge with it",
                "other ends of edges that start or end at it",
                "{b for a, b in edges if a == node} | {a for a, b in edges if b == node}",
            ),
        ]
    )
    return ToolVariant(
        name=f"neighbours_{side}_in_{name}_graph",
        args={"text": "str", "node": "str"},
        returns="list[str]",
        does=(
            f"Return the neighbours of the node: the nodes {what}.",
            f"Take the given node as 'it' and list the {other}.",
            f"For the given node, return the names of all nodes {what}.",
        ),
        behaviour=[
            _FORM.format(link) + " It leads from its left to its right name.",
            "Each neighbour is listed once, in alphabetical order; the node itself only where an edge links it to "
            "itself.",
            "A node without neighbours, or one that does not occur, gives an empty list.",
        ],
        body=_parse(link) + f"return sorted({code})",
        draw={
            "text": _edges(link, [a + b for a in "abcd" for b in "abcd"], 5, 10),
            "node": {"kind": "choice", "values": ["a", "b", "c", "d"]},
        },
        edges=[
            {"text": "", "node": "a"},
            {"text": f"a{link}b c{link}a a{link}b a{link}d e{link}a", "node": "a"},
            {"text": f"a{link}a b{link}aa", "node": "a"},
        ],
    )


def _distance(rng: random.Random) -> ToolVariant:
    name, link = rng.choice(_LINKS)
    kind, rule, extra, low = rng.choice(
        [
            ("one_way", "Edges are passed from their left to their right name only.", "", 9),
            ("two_way", "Edges are passed in both directions.", "edges += [(b, a) for a, b in edges]\n", 5),
        ]
    )
    return ToolVariant(
        name=f"{kind}_distance_in_{name}_graph",
        args={"text": "str", "start": "str", "goal": "str"},
        returns="int",
        does=(
            "Return the smallest number of edges on a path from start to goal.",
            "How many edges must be passed at least to get from start to goal? Return that number.",
            "Give the length of a shortest path between start and goal, measured in edges.",
        ),
        behaviour=[
            _FORM.format(link),
            rule,
            "Without such a path the result is -1; from a node to itself it is 0, even if the node is in no edge.",
        ],
        body=(
            _parse(link)
            + extra
            + "reached = {start: 0}\n"
            + "for steps in range(len(edges) + 1):\n"
            + "    for a, b in edges:\n"
            + "        if reached.get(a) == steps and b not in reached:\n"
            + "            reached[b] = steps + 1\n"
            + "return reached.get(goal, -1)"
        ),
        draw={
            "text": _edges(link, ["ab", "bc", "cd", "de", "ef", "fa", "ca", "db"], low, low + 5),
            "start": {"kind": "choice", "values": ["a", "b", "c", "d"]},
            "goal": {"kind": "choice", "values": ["b", "c", "d", "e", "f"]},
        },
        edges=[
            {"text": "", "start": "a", "goal": "a"},
            {"text": f"a{link}b", "start": "a", "goal": "z"},
            {"text": f"d{link}e c{link}d b{link}c a{link}b", "start": "a", "goal": "e"},
            {"text": f"a{link}b b{link}c c{link}d d{link}e a{link}d", "start": "a", "goal": "e"},
            {"text": f"b{link}a c{link}b", "start": "a", "goal": "c"},
        ],
    )


def _parts(rng: random.Random) -> ToolVariant:
    name, link = rng.choice(_LINKS)
    kind, what, how, code = rng.choice(
        [
            ("number_of", "the number of connected parts", "count these groups", "len(parts)"),
            (
                "largest",
                "the number of nodes in the largest connected part",
                "count the nodes of the largest group",
                "max(map(len, parts), default=0)",
            ),
            (
                "smallest",
                "the number of nodes in the smallest connected part",
                "count the nodes of the smallest group",
                "min(map(len, parts), default=0)",
            ),
        ]
    )
    many = _edges(link, ["ab", "bc", "ca", "de", "fg", "gh", "hi", "jk", "ke", "mn", "oo", "pq"], 1, 9)
    star = _edges(link, ["ca", "cb", "cd", "ce", "cf", "gc"], 1, 8)
    two = _edges(link, ["ca", "cb", "cd", "ec", "xy", "xz", "wx"], 3, 9)
    drawn = {"number_of": [many], "largest": [many, star], "smallest": [two, star]}[kind]
    return ToolVariant(
        name=f"{kind}_parts_of_{name}_graph",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return {what} of the graph.",
            f"Group the nodes such that two nodes are in one group if a chain of edges links them, and {how}.",
            f"Nodes that a path of edges links make up a connected part of the graph. Give {what}.",
        ),
        behaviour=[
            _FORM.format(link),
            "Edges have no direction, and the nodes are the names in edges.",
            "No edge gives 0.",
        ],
        body=(
            _parse(link)
            + "parts = []\n"
            + "for edge in edges:\n"
            + "    joined = set(edge).union(*[part for part in parts if part & set(edge)])\n"
            + "    parts = [part for part in parts if not part & set(edge)] + [joined]\n"
            + f"return {code}"
        ),
        draw={"text": {"kind": "one_of", "of": drawn}},
        edges=[
            "",
            f"a{link}a",
            f"a{link}b c{link}d b{link}c e{link}f",
            f"x{link}y x{link}y zz{link}z v{link}w y{link}u",
        ],
        laws=[{"kind": "bounds", "low": 0}],
    )


def _order(rng: random.Random) -> ToolVariant:
    name, link = rng.choice(_LINKS)
    first, place = rng.choice([("first", 0), ("last", -1)])
    return ToolVariant(
        name=f"order_of_{name}_graph_ties_{first}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Put all nodes in an order in which each edge 'a{link}b' has a before b. Wherever several nodes could "
            f"come next, take the {first} of them in the alphabet.",
            f"Sort the graph topologically: again and again take, of the nodes to which no edge leads from a node that "
            f"is left, the alphabetically {first} one.",
            f"'a{link}b' says that a must be done before b. Return the order of work, always going on with the "
            f"alphabetically {first} node of which all that must come before is done.",
        ),
        behaviour=[
            _FORM.format(link),
            "The nodes of the result are joined by one blank; no edge gives the empty string.",
        ],
        body=(
            _parse(link)
            + "left, order = sorted({node for edge in edges for node in edge}), []\n"
            + "for _ in range(len(left)):\n"
            + "    ready = [node for node in left if not any(b == node and a in left for a, b in edges)]\n"
            + "    if not ready:\n"
            + "        raise ValueError('the edges form a circle')\n"
            + f"    order.append(ready[{place}])\n"
            + "    left.remove(order[-1])\n"
            + "return ' '.join(order)"
        ),
        draw={"text": _edges(link, ["da", "db", "ae", "be", "ac", "cf", "bf", "gd", "gc", "ef"], 2, 7)},
        edges=["", f"b{link}a", f"c{link}b a{link}b d{link}c a{link}b"],
        raises="the edges form a circle, such as an edge from a node to itself",
        errors=[f"a{link}b b{link}a", f"a{link}a", f"x{link}a a{link}b b{link}c c{link}a"],
    )


FAMILY = Family(
    name="graph_edges",
    subject="graphs as text",
    tools=(
        ToolTemplate(level=1, make=_flip),
        ToolTemplate(level=2, make=_degrees),
        ToolTemplate(level=1, make=_neighbours),
        ToolTemplate(level=3, make=_distance),
        ToolTemplate(level=3, make=_parts),
        ToolTemplate(level=3, make=_order),
    ),
)

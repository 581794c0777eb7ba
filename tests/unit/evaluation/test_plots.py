"""Pictures are the same bytes for the same numbers, and no text can break them."""

import math
import re
from xml.etree import ElementTree

import pytest

from skyrl_nat.evaluation import plots

NAMES = ["$x_{", "<b>", "ü 🙂", "plain"]

PICTURES = {
    "lines": lambda: plots.lines(
        {name: ([0, 1, 2], [0.1, math.nan, 0.3]) for name in NAMES},
        x_label="step",
        y_label="$reward",
        bands={NAMES[0]: ([0, 0.1, 0.2], [0.2, 0.3, 0.4])},
    ),
    "bars": lambda: plots.bars({name: {"before": 0.2, "after": 0.4} for name in NAMES}, y_label="share"),
    "intervals": lambda: plots.intervals(dict.fromkeys(NAMES, (0.1, 0.0, 0.2)), x_label="difference", centre=0.0),
    "strips": lambda: plots.strips({name: [0.0, 1.0, 0.5] for name in NAMES}, x_label="rollout"),
    "nothing": lambda: plots.strips({}, x_label="rollout"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_svg_and_the_same_bytes_each_time(name: str):
    first = PICTURES[name]()
    assert ElementTree.fromstring(first).tag.endswith("svg")
    assert first == PICTURES[name]()


def test_of_many_rows_evenly_chosen_ones_are_shown():
    few, many = (plots.strips({str(i): [1.0] for i in range(n)}, x_label="rollout") for n in (plots.MOST_ROWS, 1000))
    heights = [re.search(r'height="([\d.]+)pt"', svg)[1] for svg in (few, many)]
    assert heights[0] == heights[1]

"""Pictures of a report as SVG; the same numbers give the same bytes."""

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#777777")
"""Of Okabe and Ito: told apart by people who see some colours alike."""
LOOK: Any = {
    "svg.hashsalt": "skyrl-nat",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=COLOURS),
    "font.size": 9,
    "legend.frameon": False,
}
Points = tuple[Sequence[float], Sequence[float]]
"""Places and heights; NaN leaves a gap."""
MOST_ROWS = 60
"""Of a strip chart: more are too thin to see."""


def lines(
    series: Mapping[str, Points], *, x_label: str, y_label: str, bands: Mapping[str, Points] | None = None
) -> str:
    """Return curves over steps.

    Args:
        series: By name.
        x_label: Of the axis, with its unit.
        y_label: The same.
        bands: Lower and upper bounds of a curve, at its places.
    """
    with _picture() as (axes, svg):
        for name, (places, heights) in series.items():
            (line,) = axes.plot(places, heights, label=name, marker="o" if len(places) < 30 else None, markersize=3)
            if bands and name in bands:
                low, high = bands[name]
                axes.fill_between(places, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        _label(axes, x_label, y_label, has_legend=len(series) > 1)
    return svg()


def bars(values: Mapping[str, Mapping[str, float]], *, y_label: str) -> str:
    """Return groups of bars: one group for each name, one bar in it for each series."""
    names = list(values)
    series = list(dict.fromkeys(key for each in values.values() for key in each))
    width = 0.8 / max(2, len(series))
    with _picture() as (axes, svg):
        for number, key in enumerate(series):
            places = [place + width * (number - (len(series) - 1) / 2) for place in range(len(names))]
            axes.bar(places, [values[name].get(key, math.nan) for name in names], width, label=key)
        turned = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if len(names) > 5 else {}
        axes.set_xticks(range(len(names)), names, **turned)
        _label(axes, "", y_label, has_legend=len(series) > 1)
    return svg()


def intervals(
    values: Mapping[str, tuple[float, float, float]],
    *,
    x_label: str,
    centre: float | None = None,
    bounds: tuple[float, float] | None = None,
) -> str:
    """Return a line for each name from a lower to an upper bound, with a dot at the value.

    Args:
        values: Value, lower and upper bound by name; shown from top to bottom.
        x_label: Of the axis, with its unit.
        centre: Where a thin line stands for "no difference".
        bounds: Of the axis; None lets the values choose.
    """
    with _picture(height=0.8 + 0.3 * len(values)) as (axes, svg):
        places = range(len(values) - 1, -1, -1)
        for place, (value, low, high) in zip(places, values.values(), strict=True):
            axes.plot([low, high], [place, place], color=COLOURS[0])
            axes.plot([value], [place], "o", color=COLOURS[0], markersize=4)
        axes.set_yticks(list(places), list(values))
        axes.margins(y=0.15)
        if bounds is not None:
            axes.set_xlim(bounds[0] - 0.02, bounds[1] + 0.02)
        if centre is not None:
            axes.axvline(centre, color="#888", linewidth=0.8)
        _label(axes, x_label, "")
    return svg()


def strips(rows: Mapping[str, Sequence[float]], *, x_label: str) -> str:
    """Return one row of cells for each name, from 0 (light) to 1 (dark): which of a group's rollouts succeeded.

    Of more than `MOST_ROWS` rows evenly chosen ones are shown.
    """
    names = list(rows)
    if len(names) > MOST_ROWS:
        names = [names[i * len(names) // MOST_ROWS] for i in range(MOST_ROWS)]
    longest = max((len(rows[name]) for name in names), default=1)
    cells = [[*rows[name], *([math.nan] * (longest - len(rows[name])))] for name in names]
    with _picture(height=0.8 + 0.14 * len(names)) as (axes, svg):
        if cells:
            axes.pcolormesh(cells, cmap="Blues", vmin=-0.2, vmax=1.0, edgecolors="white", linewidth=0.5)
        axes.invert_yaxis()
        axes.set_xticks([place + 0.5 for place in range(longest)], [str(place) for place in range(longest)])
        axes.set_yticks([place + 0.5 for place in range(len(names))], names, fontsize=5)
        _label(axes, x_label, "")
    return svg()


@contextmanager
def _picture(height: float = 2.8) -> "Iterator[tuple[Axes, _Svg]]":
    with mpl.rc_context(LOOK):
        figure = Figure((7.0, height), layout="constrained")
        svg = _Svg()
        yield figure.add_subplot(), svg
        buffer = io.StringIO()
        with warnings.catch_warnings():
            # A letter that the font of measuring lacks is drawn by the reader's.
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        svg.text = buffer.getvalue()


class _Svg:
    """The picture, once it is drawn."""

    text = ""

    def __call__(self) -> str:
        """Return it."""
        return self.text


def _label(axes: Axes, x_label: str, y_label: str, *, has_legend: bool = False) -> None:
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if has_legend:
        axes.legend()

"""A sweep as a picture: rollouts per second and their price over the number of GPUs."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from skyrl_nat.config.cluster import Placement
from skyrl_nat.planning.sweep import SweepRow

_COLOURS = {Placement.colocated: "#0072b2", Placement.disaggregated: "#d55e00"}


def write_plot(rows: Sequence[SweepRow], path: Path) -> None:
    """Write the picture of a sweep; the suffix (svg, png, pdf) says in which format."""
    with mpl.rc_context({"svg.hashsalt": "skyrl-nat", "font.size": 9}):
        figure = Figure(figsize=(9, 4), layout="constrained")
        speed, price = figure.subplots(1, 2)
        for placement, colour in _COLOURS.items():
            own = [row for row in rows if row.layout.config.cluster.placement is placement]
            gpus = [row.layout.num_gpus for row in own]
            speed.plot(gpus, [row.rollouts_per_s for row in own], marker="o", color=colour, label=str(placement))
            price.plot(gpus, [row.cost_per_1000 for row in own], marker="o", color=colour, label=str(placement))
        for axes, label in ((speed, "rollouts per second"), (price, "cost of 1,000 rollouts")):
            axes.set(xlabel="GPUs", ylabel=label, xscale="log", yscale="log")
            axes.set_xscale("log", base=2)
            axes.legend(frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)

"""How a metric of a run, `part/quantity[/reduction]`, is called in Prometheus (docs/monitoring.md)."""

import re
from dataclasses import dataclass

PREFIX = "skyrl_nat"
TARGETS = ".prometheus.json"
"""End of the file beside a run folder, while the run lasts: where it is scraped, as file_sd_configs reads it."""
_UNITS = (
    (r"_?gb_per_s", "bytes_per_second", 1e9),
    (r"_per_gpu_s", "per_gpu_second", 1.0),
    (r"_per_s", "per_second", 1.0),
    (r"_?gib", "bytes", 2.0**30),
    (r"_?mib", "bytes", 2.0**20),
    (r"_s", "seconds", 1.0),
)
"""How a part of a name may end, what stands at the end of the whole name instead, and what a value is multiplied by."""
_KEPT = {"count": "number", "total": "whole"}
"""How no gauge may end: histograms and counters do. And what stands there instead."""
_GPU = re.compile(r"gpu/(\d+)/(.+)")


@dataclass(frozen=True, slots=True)
class PrometheusName:
    """Where a metric is found."""

    name: str
    factor: float = 1.0
    """From the run's unit to the base unit."""
    gpu: str = ""
    """Value of the label `gpu`; empty where there is none."""


def prometheus_name(metric: str) -> PrometheusName:
    """Return where a metric of a run is found.

    Parts are joined by `_`; a unit moves to the end and becomes a base unit; endings that Prometheus keeps for itself
    become others; the number of a GPU becomes a label.
    """
    gpu = ""
    if found := _GPU.fullmatch(metric):
        gpu, metric = found[1], f"one_gpu/{found[2]}"
    parts, unit, factor = metric.split("/"), "", 1.0
    for number, part in enumerate(parts):
        for ending, name, by in _UNITS:
            if not unit and (match := re.search(ending + "$", part)):
                parts[number], unit, factor = part[: match.start()], name, by
    parts[-1] = _KEPT.get(parts[-1], parts[-1])
    text = "_".join(part for part in [PREFIX, *parts, unit] if part)
    return PrometheusName(re.sub("[^a-zA-Z0-9_]", "_", text), factor, gpu)

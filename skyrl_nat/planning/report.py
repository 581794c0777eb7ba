"""A plan, a machine and a sweep as tables of plain text."""

from collections.abc import Iterable, Sequence
from typing import Any

from skyrl_nat.planning.hardware import Hardware
from skyrl_nat.planning.recommend import Layout
from skyrl_nat.planning.sweep import SweepRow

_NUM_LAYOUTS = 3


def hardware_table(found: Hardware) -> str:
    """Return what a machine has."""
    cpu, gpus = found.cpu, found.gpus
    cards = ", ".join(f"{card.name} {card.memory_mib / 1024:.1f} GiB" for card in gpus.cards) or "none"
    rows = [
        ("processor", cpu.model or "unknown"),
        ("cores", f"{cpu.num_cores} of {cpu.num_cores_of_machine} (limit: {found.cores_limited_by})"),
        ("vectors", ", ".join(cpu.vectors) or "none known"),
        ("memory", f"{found.memory_gib:.1f} GiB, {found.free_memory_gib:.1f} free (limit: {found.memory_limited_by})"),
        ("GPUs", cards + (f" ({gpus.kind}, by {gpus.found_by})" if gpus.cards else "")),
        ("links between GPUs", gpus.links or "none"),
        ("network", ", ".join(found.network) or "no InfiniBand or RoCE"),
        ("free disk", f"{found.disk_gib:.1f} GiB"),
    ]
    if found.slurm:
        rows.append(("Slurm job", ", ".join(f"{name} {number}" for name, number in found.slurm.items())))
    return table(("what", "found"), rows)


def plan_table(plan: dict[str, Any], layouts: Sequence[Layout], notes: Iterable[str]) -> str:
    """Return a plan, the best layouts of as many GPUs, and what to know of both."""
    memory, seconds, run = plan["memory"], plan["seconds"], plan["run"]
    pieces = [
        "Batch",
        table(("word", "number"), [(name, f"{number:,}") for name, number in plan["batch_plan"].items()]),
        f"Memory, GiB (of {memory['capacity_gib']:.1f}; peak {memory['peak_gib']:.1f})",
        _memory(memory["phases_gib"]),
        "A step, seconds",
        table(tuple(seconds), [tuple(f"{number:.2f}" for number in seconds.values())]),
        f"The run: {run['hours']:.1f} hours, {run['cost']:,.2f} at {run['price_per_hour']:g} an hour "
        f"for each of {max(1, plan['machine']['gpus'])} x {plan['machine']['name']}",
    ]
    if layouts:
        pieces += ["Recommended for as many GPUs", _layouts(layouts[:_NUM_LAYOUTS])]
        pieces.append(f"The first one: {layouts[0].overrides}")
    return "\n".join([*pieces, *notes])


def sweep_table(rows: Sequence[SweepRow]) -> str:
    """Return shapes beside each other."""
    return table(
        (
            "GPUs",
            "placement",
            "ranks",
            "engines",
            "S",
            "tasks",
            "GiB",
            "step s",
            "rollouts/s",
            "waits",
            "failures",
            "cost",
        ),
        [
            (
                str(row.layout.num_gpus),
                str(row.layout.config.cluster.placement),
                str(row.layout.config.cluster.num_policy_ranks),
                f"{row.layout.config.cluster.num_engines} x {row.layout.config.cluster.num_gpus_per_engine}",
                str(row.layout.config.trainer.staleness),
                str(row.layout.config.trainer.tasks_per_step),
                f"{row.layout.estimate.peak_gib:.1f}",
                f"{row.layout.estimate.seconds.step:.1f}",
                f"{row.rollouts_per_s:.2f}",
                f"{row.layout.waiting_share:.0%}",
                str(row.month.num_failures),
                f"{row.cost_per_1000:.2f}",
            )
            for row in rows
        ],
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return columns as wide as their widest entry."""
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _memory(phases: dict[str, dict[str, float]]) -> str:
    parts = list(dict.fromkeys(name for phase in phases.values() for name in phase))
    rows = [(part, *(f"{phase[part]:.2f}" if part in phase else "" for phase in phases.values())) for part in parts]
    rows = [row for row in rows if any(text not in ("", "0.00") for text in row[1:])]
    return table(("part", *phases), [*rows, ("all", *(f"{sum(phase.values()):.2f}" for phase in phases.values()))])


def _layouts(layouts: Sequence[Layout]) -> str:
    return table(
        ("placement", "ranks", "engines x GPUs", "staleness", "step s", "peak GiB"),
        [
            (
                str(each.config.cluster.placement),
                str(each.config.cluster.num_policy_ranks),
                f"{each.config.cluster.num_engines} x {each.config.cluster.num_gpus_per_engine}",
                str(each.config.trainer.staleness),
                f"{each.estimate.seconds.step:.2f}",
                f"{each.estimate.peak_gib:.1f}",
            )
            for each in layouts
        ],
    )

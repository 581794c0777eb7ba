"""Where the GPU-seconds of a step went, and what came out of them; docs/accounting.md says it in words.

Every instant of every GPU counts once, so that the shares sum to 1 whatever was reported.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from skyrl_nat.monitoring.cards import Card
from skyrl_nat.monitoring.flops import mfu
from skyrl_nat.monitoring.usage import Activity, Interval

IDLE = "idle"
PARTS = (*map(str, Activity), IDLE)
Span = tuple[float, float]


class Window(NamedTuple):
    """From where to where a step is accounted for."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Length."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTime:
    """One GPU during one step."""

    seconds: dict[str, float]
    """By part, idle included; their sum is the window's length."""
    contended_s: float
    """Seconds that two activities claimed at once: 0 where a GPU does one thing at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What a step got done; None means not known, and the metrics that need it are left out."""

    num_engine_tokens: int
    """Prompt and completion tokens through the engines."""
    num_trained_tokens: int
    """Of all samples, prompts included."""
    num_pushed_bytes: int
    """That each engine took."""
    training_flops: float | None = None
    decode_bytes: float | None = None
    """That engines had to read: weights once per decoding step, keys and values once per token."""
    link_bytes_per_s: float | None = None
    """The most that the transport's way can carry."""


def split_time(intervals: Iterable[Interval], window: Window) -> GpuTime:
    """Share the window out to activities by the order of `Activity`, the rest is idle.

    Args:
        intervals: Of one GPU, from all its processes, in any order; they may overlap and leave the window.
        window: The step.
    """
    spans: dict[Activity, list[Span]] = {activity: [] for activity in Activity}
    for activity, start, end in intervals:
        spans[activity].append((start, end))
    seconds: dict[str, float] = {}
    taken: list[Span] = []
    claimed = 0.0
    for activity in Activity:
        before = _length(taken)
        own = _union(spans[activity], window)
        taken = _union(taken + own, window)
        seconds[activity] = _length(taken) - before
        claimed += _length(own)
    seconds[IDLE] = window.seconds - _length(taken)
    return GpuTime(seconds=seconds, contended_s=claimed - _length(taken))


def gpu_metrics(gpus: Sequence[GpuTime], window: Window) -> dict[str, float]:
    """Return the share of every part, over all GPUs and for each, and the idle seconds."""
    total = len(gpus) * window.seconds
    idle = [gpu.seconds[IDLE] for gpu in gpus]
    metrics = {f"gpu/{part}/share": gpu_seconds(gpus, part) / total for part in PARTS}
    metrics |= {
        f"gpu/{number}/{part}/share": gpu.seconds[part] / window.seconds
        for number, gpu in enumerate(gpus)
        for part in PARTS
    }
    return metrics | {
        "gpu/idle_s/mean": sum(idle) / len(gpus),
        "gpu/idle_s/max": max(idle),
        "gpu/contended/share": sum(gpu.contended_s for gpu in gpus) / total,
        "gpu/count": float(len(gpus)),
    }


def work_metrics(
    work: StepWork, gpus: Sequence[GpuTime], window: Window, *, push_s: float, card: Card | None
) -> dict[str, float]:
    """Return tokens per second, and how near the work came to what the cards can do.

    Args:
        work: Of the step.
        gpus: As `gpu_metrics` takes them.
        window: The step.
        push_s: Seconds from the first to the last byte of the push.
        card: What the GPUs are; None leaves out what is measured against their peaks.
    """
    total = len(gpus) * window.seconds
    metrics = {
        "throughput/engine_tokens_per_gpu_s": work.num_engine_tokens / total,
        "throughput/trained_tokens_per_gpu_s": work.num_trained_tokens / total,
    }
    if push_s > 0:
        metrics["push/gb_per_s"] = work.num_pushed_bytes / push_s / 1e9
        if work.link_bytes_per_s is not None:
            metrics["push/link_share"] = work.num_pushed_bytes / push_s / work.link_bytes_per_s
    if card is None:
        return metrics
    if work.training_flops is not None:
        metrics["step/mfu"] = mfu(work.training_flops, total, peak_flops=card.bf16_flops)
        if train_s := gpu_seconds(gpus, Activity.TRAIN):
            metrics["train/mfu"] = mfu(work.training_flops, train_s, peak_flops=card.bf16_flops)
    rollout_s = gpu_seconds(gpus, Activity.ROLLOUT)
    if work.decode_bytes is not None and rollout_s:
        metrics["rollout/bandwidth_share"] = work.decode_bytes / (rollout_s * card.memory_bytes)
    return metrics


def gpu_seconds(gpus: Iterable[GpuTime], part: str) -> float:
    """Return the seconds of one part over all GPUs."""
    return sum(gpu.seconds[part] for gpu in gpus)


def union_seconds(intervals: Iterable[Interval], activity: Activity, window: Window) -> float:
    """Return the seconds of a window during which any of these did one activity."""
    return _length(_union([(start, end) for kind, start, end in intervals if kind == activity], window))


def _union(spans: Iterable[Span], window: Window) -> list[Span]:
    """Return the same instants as spans that do not touch, in order, cut to the window."""
    merged: list[Span] = []
    for start, end in sorted((max(start, window.start), min(end, window.end)) for start, end in spans):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _length(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)

"""What a run is doing at this moment, as gauges that move while a step is under way, and those of its machine."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from skyrl_nat.monitoring.prometheus_names import PREFIX

PHASES = ("start", "rollout", "train", "push", "save", "evaluate")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """A run at one moment."""

    step: int
    """Trained so far."""
    total_steps: int
    phase: str
    """One of `PHASES`."""
    silent_s: float
    """Since the watchdog last saw progress."""
    silence_limit_s: float
    """Silence at which the watchdog acts."""
    pushed_version: int
    """Policy version that the engines serve."""
    workers: Mapping[str, int]
    """By role, all that the run has."""
    alive_workers: Mapping[str, int]
    """By role, those that are called and answer."""
    longest_wait_s: Mapping[str, float]
    """By role, of the calls that have no answer yet; 0 where nobody is waited for."""
    requests: Mapping[int, int]
    """In flight, by engine."""
    playing_rollouts: int
    scoring_rollouts: int
    playing_groups: int
    ready_groups: int
    """Finished, and waiting for the trainer."""
    quarantined_tasks: int
    engine_restarts: int
    """In all."""


def live_metrics(state: LiveState) -> Iterator[Metric]:
    """Return the gauges of a run's state."""
    yield _gauge("step", "Steps trained", state.step)
    yield _gauge("planned_steps", "Steps of the whole run", state.total_steps)
    yield _gauge("policy_version", "Policy version that the engines serve", state.pushed_version)
    yield _gauge("progress_silent_seconds", "Since the watchdog last saw progress", state.silent_s)
    yield _gauge("progress_limit_seconds", "Silence at which the watchdog acts", state.silence_limit_s)
    yield _by("phase", "1 for what is being done", "phase", {one: float(one == state.phase) for one in PHASES})
    yield _by("workers", "Workers that the run has", "role", state.workers)
    yield _by("workers_alive", "Workers that are called and answer", "role", state.alive_workers)
    yield _by("wait_longest_seconds", "Longest wait for an answer now", "role", state.longest_wait_s)
    yield _by("engine_requests", "Requests in flight", "engine", {str(e): n for e, n in state.requests.items()})
    yield _gauge("rollouts_playing", "Rollouts that are played now", state.playing_rollouts)
    yield _gauge("rollouts_scoring", "Rollouts that wait for their verdict", state.scoring_rollouts)
    yield _gauge("groups_playing", "Groups that are played now", state.playing_groups)
    yield _gauge("groups_ready", "Finished groups that wait for the trainer", state.ready_groups)
    yield _gauge("tasks_quarantined", "Tasks that are not played any more", state.quarantined_tasks)
    yield CounterMetricFamily(f"{PREFIX}_engine_restarts", "Engines started anew", value=state.engine_restarts)


def machine_metrics(folder: Path) -> Iterator[Metric]:
    """Return what the machine of this process has left; a disk that cannot be asked has no figures."""
    memory, cpu = psutil.virtual_memory(), psutil.cpu_times()
    yield _gauge("memory_available_bytes", "Memory that can still be had", memory.available)
    yield _gauge("memory_size_bytes", "Memory of the machine", memory.total)
    busy = CounterMetricFamily(f"{PREFIX}_cpu_busy_seconds", "CPU seconds of all processes of the machine")
    busy.add_metric([], cpu.user + cpu.system)
    yield busy
    yield _gauge("cpus", "Logical CPUs of the machine", psutil.cpu_count() or 0)
    try:
        disk = shutil.disk_usage(folder)
    except OSError:
        return
    yield _gauge("disk_free_bytes", "Free space where the run folder lies", disk.free)
    yield _gauge("disk_size_bytes", "Size of the disk where the run folder lies", disk.total)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)


def _by(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family

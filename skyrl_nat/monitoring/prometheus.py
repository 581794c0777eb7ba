"""The tracking back end `prometheus`: a page for Prometheus to scrape, or a file for node_exporter."""

import json
import math
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server, write_to_textfile
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from skyrl_nat.config.outputs import TrackingConfig
from skyrl_nat.monitoring import spans
from skyrl_nat.monitoring.latencies import Latencies
from skyrl_nat.monitoring.live import LiveState, live_metrics, machine_metrics
from skyrl_nat.monitoring.prometheus_names import PREFIX, TARGETS, prometheus_name

HOST = "127.0.0.1"
TEXTFILE_S = 15.0
"""Between two versions of the text file."""
MAX_METRICS = 2000
"""Of a run, so that environments that make names up do not fill Prometheus."""


class StepMetrics(Collector):
    """The newest lines of metrics: a line stands until the next one that has a name in common with it."""

    def __init__(self) -> None:
        """Show nothing yet."""
        self._lines: tuple[Mapping[str, float], ...] = ()

    def rewind(self) -> None:
        """Forget all lines."""
        self._lines = ()

    def log(self, metrics: Mapping[str, float]) -> None:
        """Take a line of metrics."""
        lines = (*(line for line in self._lines if not line.keys() & metrics.keys()), dict(metrics))
        num_metrics = sum(map(len, lines))
        if num_metrics > MAX_METRICS:
            raise ValueError(f"a run must have at most {MAX_METRICS} metrics for Prometheus, it has {num_metrics}")
        self._lines = lines

    def collect(self) -> Iterator[Metric]:
        """Return all metrics as gauges."""
        families: dict[str, GaugeMetricFamily] = {}
        shown: set[tuple[str, str]] = set()
        lines = self._lines
        for metric, value in sorted(item for line in lines for item in line.items()):
            found = prometheus_name(metric)
            if (found.name, found.gpu) in shown:
                continue  # Prometheus refuses a page that has a name twice
            shown.add((found.name, found.gpu))
            labels = ["gpu"] if found.gpu else []
            family = families.setdefault(found.name, GaugeMetricFamily(found.name, metric, labels=labels))
            family.add_metric([found.gpu] if found.gpu else [], value * found.factor)
        yield from families.values()
        yield GaugeMetricFamily(
            f"{PREFIX}_metrics_not_finite",
            "Metrics of the newest lines that are NaN or infinite",
            value=sum(not math.isfinite(value) for line in lines for value in line.values()),
        )


class PrometheusBackend:
    """Serves the metrics of a run on the loopback address, or writes them into a file."""

    def __init__(self, folder: Path, config: TrackingConfig) -> None:
        """Open the page or the file.

        Raises:
            OSError: The port is in use, or the file cannot be written.
        """
        self._folder = folder
        self._live: Callable[[], LiveState] | None = None
        self._registry = CollectorRegistry()
        self._steps = StepMetrics()
        self._registry.register(self._steps)
        self._registry.register(self)  # pyright: ignore[reportArgumentType]  # its protocol is `collect`
        ProcessCollector(namespace=f"{PREFIX}_controller", registry=self._registry)
        self._opened: _Page | _TextFile = (
            _TextFile(Path(config.prometheus_textfile), self._registry, folder.name)
            if config.prometheus_textfile
            else _Page(folder, config.prometheus_port, self._registry)
        )
        self._end_observing = spans.observe(Latencies(self._registry))

    def watch(self, live: Callable[[], LiveState]) -> None:
        """Ask for the run's state whenever metrics are asked for."""
        self._live = live

    def collect(self) -> Iterator[Metric]:
        """Return the gauges of this moment."""
        yield from machine_metrics(self._folder)
        if self._live is not None:
            yield from live_metrics(self._live())

    def rewind(self, step: int) -> None:
        """Forget what was trained after `step`."""
        self._steps.rewind()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show a line of metrics from now on; a back end that cannot is used no more, and ends."""
        try:
            self._steps.log(metrics)
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """Serve nothing any more."""
        self._end_observing()
        self._opened.close()


class _Page:
    """`/metrics` at a port, told by a file beside the run folder: Prometheus looks for them in one folder alone."""

    def __init__(self, folder: Path, port: int, registry: CollectorRegistry) -> None:
        self._targets = folder.with_name(folder.name + TARGETS)
        if _is_answered(self._targets):
            raise FileExistsError(f"{self._targets} is of a process of this run that still answers")
        self._server, self._thread = start_http_server(port, HOST, registry)
        target = {"targets": [f"{HOST}:{self._server.server_port}"], "labels": {"run": folder.name}}
        part = self._targets.with_suffix(".part")
        part.write_text(json.dumps([target]) + "\n", encoding="utf-8")
        part.replace(self._targets)

    def close(self) -> None:
        self._targets.unlink(missing_ok=True)
        self._server.shutdown()
        self._server.server_close()


def _is_answered(targets: Path) -> bool:
    """Return whether somebody listens where a file says; one that a killed run has left says nothing."""
    try:
        host, port = json.loads(targets.read_text(encoding="utf-8"))[0]["targets"][0].split(":")
        with socket.create_connection((host, int(port)), timeout=1.0):
            return True
    except (OSError, ValueError, LookupError):
        return False


class _TextFile:
    """A file that is written anew again and again; its series bear the run's name: runs of a machine share a page."""

    def __init__(self, path: Path, registry: CollectorRegistry, run: str) -> None:
        self._path = path
        self._labelled = CollectorRegistry()
        self._labelled.register(_WithRun(registry, run))
        self._ends = threading.Event()
        self._write()
        self._thread = threading.Thread(target=self._keep_writing, name="prometheus text file", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ends.set()
        self._thread.join(TEXTFILE_S)
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        write_to_textfile(str(self._path), self._labelled)

    def _keep_writing(self) -> None:
        while not self._ends.wait(TEXTFILE_S):
            try:
                self._write()
            except OSError:
                continue  # a disk that is full now may have room later; node_exporter tells of the file's age


class _WithRun(Collector):
    """A registry whose samples have a label `run`."""

    def __init__(self, registry: CollectorRegistry, run: str) -> None:
        self._registry = registry
        self._run = run

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [one._replace(labels={**one.labels, "run": self._run}) for one in family.samples]
            yield family

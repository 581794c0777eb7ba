"""Every metric to every back end at once. `metrics.jsonl` is the record; another back end may fail, never a run."""

import itertools
import json
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from skyrl_nat.config.outputs import TrackingConfig
from skyrl_nat.errors import TrackingError
from skyrl_nat.json_lines import append_lines, encode_line, mend_lines, open_lines, replace_lines
from skyrl_nat.monitoring.console import ConsoleBackend
from skyrl_nat.monitoring.live import LiveState
from skyrl_nat.monitoring.wandb_backend import WandbBackend

T = TypeVar("T")
logger = logging.getLogger(__name__)
_file_numbers = itertools.count()


class Backend(Protocol):
    """Somewhere metrics go."""

    def rewind(self, step: int) -> None:
        """Take note that the run goes on after `step`: what came after it is played and trained again."""
        ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one step."""
        ...

    def close(self) -> None:
        """Flush."""
        ...


@runtime_checkable
class Watches(Protocol):
    """A back end that shows a run between two steps too."""

    def watch(self, live: Callable[[], LiveState]) -> None:
        """Take what tells the run's state."""
        ...


class JsonlBackend:
    """`metrics.jsonl` in the run folder: one object per step, written at once."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "metrics.jsonl"
        self._file = open_lines(self._path)
        mend_lines(self._file, self._path)

    def rewind(self, step: int) -> None:
        """Forget the lines of later steps."""
        self._file.close()
        with self._path.open("rb") as lines:
            replace_lines(self._path, self._up_to(step, lines))
        self._file = open_lines(self._path)

    def _up_to(self, step: int, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Return the lines to keep, one at a time: the record of a long run is large."""
        num_lines = num_broken = 0
        for line in lines:
            found = _step_of(line)
            num_lines += 1
            num_broken += found == math.inf
            if found <= step:
                yield line.rstrip(b"\n")
        if num_broken:
            logger.warning("%s: %d of %d lines are no metrics and are left out", self._path, num_broken, num_lines)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line."""
        append_lines(self._file, encode_line({"step": step, **metrics}))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorboardBackend:
    """Event files in `tensorboard/` of the run folder, a new one for each start of the run.

    TensorBoard's own writer has a thread, which prints a traceback and ends where the disk is full; here each step is
    written at once.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        name = f"events.out.tfevents.{time.time():010.0f}.{socket.gethostname()}.{os.getpid()}.{next(_file_numbers)}"
        path = folder / "tensorboard" / name
        path.parent.mkdir(exist_ok=True)
        self._file = path.open("wb")
        self._writer = RecordWriter(self._file)
        self._add(0, file_version="brain.Event:2")

    def rewind(self, step: int) -> None:
        """Let TensorBoard forget what earlier files hold of later steps."""
        from tensorboard.compat.proto.event_pb2 import SessionLog  # pyright: ignore[reportAttributeAccessIssue]

        self._add(step + 1, session_log=SessionLog(status=SessionLog.START))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one scalar per metric."""
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._add(step, summary=Summary(value=values))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _add(self, step: int, **what: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

        self._writer.write(Event(step=step, wall_time=time.time(), **what).SerializeToString())
        self._file.flush()


class Tracker:
    """Fans metrics out to the back ends named in the config."""

    def __init__(
        self, config: TrackingConfig, folder: Path, run_config: Mapping[str, Any], console: ConsoleBackend
    ) -> None:
        """Open all back ends; one that cannot open is reported and left out.

        Raises:
            TrackingError: `metrics.jsonl` cannot be opened.
        """
        self._console = console
        self._jsonl = _recorded(lambda: JsonlBackend(folder))
        self._backends: dict[str, Backend] = {}
        if "console" in config.backends:
            self._backends["console"] = console
        if "tensorboard" in config.backends:
            self._open("tensorboard", lambda: TensorboardBackend(folder))
        if "wandb" in config.backends:
            self._open("wandb", lambda: WandbBackend(folder, config, run_config, self._warn))
        if "prometheus" in config.backends:
            self._open("prometheus", lambda: _prometheus(folder, config))

    def rewind(self, step: int) -> None:
        """Say that a run goes on after `step`.

        Raises:
            TrackingError: `metrics.jsonl` cannot be written.
        """
        _recorded(lambda: self._jsonl.rewind(step))
        self._each(lambda backend: backend.rewind(step))

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Send the metrics of one step everywhere.

        Args:
            step: Of the run.
            metrics: Numbers, or arrays and tensors of one number; nothing of them is kept.

        Raises:
            TrackingError: A metric is not one number, or `metrics.jsonl` cannot be written.
        """
        numbers = {name: _plain_number(name, value) for name, value in metrics.items()}
        _recorded(lambda: self._jsonl.log(step, numbers))
        self._each(lambda backend: backend.log(step, numbers))

    def watch(self, live: Callable[[], LiveState]) -> None:
        """Give back ends that show a run between two steps what tells its state, in whatever thread they ask."""
        self._each(lambda backend: backend.watch(live) if isinstance(backend, Watches) else None)

    def run_ids(self) -> dict[str, str]:
        """Return under which id each service that gives one knows this start of the run."""
        return {name: one.run_id for name, one in self._backends.items() if isinstance(one, WandbBackend)}

    def close(self) -> None:
        """Close all back ends."""
        self._each(lambda backend: backend.close())
        self._backends.clear()
        self._jsonl.close()

    def _open(self, name: str, make: Callable[[], Backend]) -> None:
        try:
            self._backends[name] = make()
        except Exception as error:  # noqa: BLE001 - whatever a back end raises, the run goes on
            self._report(name, error)

    def _each(self, act: Callable[[Backend], None]) -> None:
        for name, backend in list(self._backends.items()):
            try:
                act(backend)
            except Exception as error:  # noqa: BLE001 - as above
                del self._backends[name]
                self._report(name, error)

    def _report(self, name: str, error: Exception) -> None:
        logger.debug("tracking back end %s", name, exc_info=error)
        self._warn(
            f"Tracking back end {name} failed and is switched off: {error!r:.300}. All metrics are in metrics.jsonl"
        )

    def _warn(self, text: str) -> None:
        try:
            self._console.warn(text)
        except (OSError, ValueError):  # a terminal that is gone
            logger.warning(text)


def _prometheus(folder: Path, config: TrackingConfig) -> Backend:
    from skyrl_nat.monitoring.prometheus import PrometheusBackend

    return PrometheusBackend(folder, config)


def _recorded(write: Callable[[], T]) -> T:
    try:
        return write()
    except OSError as error:
        raise TrackingError(
            f"metrics.jsonl must take every step, but: {error}. Free space, then go on with resume=latest"
        ) from error


def _plain_number(name: str, value: Any) -> float:
    """Return a metric as Python's own number, so that no array or graph stays alive."""
    try:
        number = value.item() if hasattr(value, "item") else value
    except (ValueError, RuntimeError):
        number = value
    if not isinstance(number, int | float):
        raise TrackingError(f"{name} must be one number, got {value!r:.80}. Reduce it before it is logged")
    return int(number) if isinstance(number, bool) else number


def _step_of(line: bytes) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return math.inf

"""Every metric to every back end at once; a failing back end is switched off, never a run."""

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from skyrl_nat.config.outputs import TrackingConfig
from skyrl_nat.monitoring.console import ConsoleBackend

logger = logging.getLogger(__name__)


class Backend(Protocol):
    """Somewhere metrics go."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one step."""
        ...

    def close(self) -> None:
        """Flush."""
        ...


class JsonlBackend:
    """`metrics.jsonl` in the run folder: one object per step, flushed at once."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "metrics.jsonl"
        self._file = self._path.open("a", encoding="utf-8")

    def rewind(self, step: int) -> None:
        """Forget the lines of steps that are trained again after a resume, and any half line."""
        kept = [line for line in self._path.read_text(encoding="utf-8").splitlines() if _step_of(line) <= step]
        self._file.close()
        self._path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        self._file = self._path.open("a", encoding="utf-8")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line; NaN and infinity become null, which JSON has a word for."""
        clean = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._file.write(json.dumps({"step": step, **clean}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorboardBackend:
    """Event files in `tensorboard/` of the run folder."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(folder / "tensorboard"))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one scalar per metric."""
        import time

        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=values)))

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class WandbBackend:
    """A WandB run; in offline mode it is written into the run folder and sent later with `wandb sync`."""

    def __init__(self, folder: Path, config: TrackingConfig, run_config: Mapping[str, Any]) -> None:
        import wandb

        self._run = wandb.init(
            project=config.wandb_project,
            entity=config.wandb_entity,
            mode=config.wandb_mode,  # pyright: ignore[reportArgumentType]  # checked in TrackingConfig
            name=folder.name,
            id=folder.name,
            resume="allow",
            dir=str(folder),
            config=dict(run_config),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send one step."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


class Tracker:
    """Fans metrics out to the back ends named in the config."""

    def __init__(
        self, config: TrackingConfig, folder: Path, run_config: Mapping[str, Any], console: ConsoleBackend
    ) -> None:
        """Open all back ends; one that cannot open is reported and left out."""
        self._jsonl = JsonlBackend(folder)
        self._backends: dict[str, Backend] = {"jsonl": self._jsonl}
        if "console" in config.backends:
            self._backends["console"] = console
        if "tensorboard" in config.backends:
            self._open("tensorboard", lambda: TensorboardBackend(folder))
        if "wandb" in config.backends:
            self._open("wandb", lambda: WandbBackend(folder, config, run_config))

    def rewind(self, step: int) -> None:
        """Say that a run goes on after `step`."""
        self._jsonl.rewind(step)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of one step everywhere."""
        for name, backend in list(self._backends.items()):
            try:
                backend.log(step, metrics)
            except Exception:
                if name == "jsonl":
                    raise
                logger.exception("Tracking back end %s failed and is switched off", name)
                del self._backends[name]

    def close(self) -> None:
        """Close all back ends."""
        for name, backend in self._backends.items():
            try:
                backend.close()
            except Exception:
                logger.exception("Tracking back end %s did not close", name)
        self._backends.clear()

    def _open(self, name: str, make: Any) -> None:
        try:
            self._backends[name] = make()
        except Exception:
            logger.exception("Tracking back end %s could not be opened and is left out", name)


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf

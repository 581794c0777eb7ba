"""Metrics to WandB, which may be out of reach at any time: what cannot be sent is kept to be sent later."""

import contextlib
import errno
import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from skyrl_nat.config.outputs import TrackingConfig
from skyrl_nat.json_lines import NOT_FINITE, whole_lines

START_S = 60.0
"""For WandB's own start, where nobody has to be reached: only a busy machine needs long, and nothing can stand in."""
ONLINE_START_S = 10.0
"""Where an offline run can stand in."""
GIVE_UP_S = 15.0
"""For WandB to give up after that, and for its import."""
CALL_S = 25.0
"""Longest wait for any call."""
ROOM_BYTES = 2**20
"""WandB says nothing of a disk that takes no more: with less it counts as full."""
T = TypeVar("T")


class WandbBackend:
    """One WandB run for each time that a run is started; those of one run folder are a group.

    `step` is an ordinary metric and the axis of all others: WandB drops what comes with a lower step of its own, as
    after a resume at an earlier checkpoint, or an evaluation beside a training step.
    """

    def __init__(
        self, folder: Path, config: TrackingConfig, run_config: Mapping[str, Any], warn: Callable[[str], None]
    ) -> None:
        """Start a run; where WandB cannot be reached, an offline one.

        Args:
            folder: The run folder, which holds the record.
            config: Section `tracking`.
            run_config: What WandB shows as the run's config.
            warn: Says a sentence to the user.
        """
        self._folder, self._config, self._run_config, self._warn = folder, config, run_config, warn
        self._record = folder / "metrics.jsonl"
        self._mode = config.wandb_mode
        self._is_spare = False
        self._begin(0)
        try:
            self._run = _within(self._start_s + GIVE_UP_S, self._start)
        except Exception as error:
            if self._mode != "online":
                raise
            self._take_spare(error)

    @property
    def run_id(self) -> str:
        """WandB's id of this run."""
        return str(self._run.id)

    def rewind(self, step: int) -> None:
        """Mark the run as one that goes on after `step`."""
        self._begin(step)
        self._name_run()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send one step, which is in the record already.

        Raises:
            OSError: The disk is full; WandB would lose the step without a word.
        """
        folder = self._run_folder()
        if folder.exists() and shutil.disk_usage(folder).free < ROOM_BYTES:
            raise OSError(errno.ENOSPC, f"No space left on device. {_how_to_send(folder)}")
        try:
            _within(CALL_S, lambda: self._send({"step": step, **metrics}))
        except Exception as error:
            if self._is_spare:
                raise
            self._take_spare(error)

    def close(self) -> None:
        """Finish the run; what could not be sent in time stays in the run folder."""
        folder = self._run_folder()
        try:
            _within(2 * CALL_S, self._run.finish)
        except Exception as error:  # noqa: BLE001 - whatever WandB raises, the run is over
            self._warn(f"WandB did not take everything ({_first_line(error)}). {_how_to_send(folder)}")

    @property
    def _start_s(self) -> float:
        return ONLINE_START_S if self._mode == "online" else START_S

    def _start(self) -> Any:
        """Start a run with a service of its own: one that the environment names may end before this run, or is gone."""
        import wandb
        from wandb import env

        os.environ.pop(env.SERVICE, None)
        run = wandb.init(
            project=self._config.wandb_project,
            entity=self._config.wandb_entity,
            mode=self._mode,  # pyright: ignore[reportArgumentType]  # checked in TrackingConfig
            name=self._folder.name,
            group=self._folder.name,
            dir=str(self._folder),
            config=dict(self._run_config),
            settings=wandb.Settings(
                init_timeout=self._start_s,
                login_timeout=self._start_s,
                finish_timeout=CALL_S,
                finish_timeout_raises=True,
                silent=True,
                console="off",
            ),
        )
        run.define_metric("*", step_metric="step")
        return run

    def _send(self, metrics: Mapping[str, Any]) -> None:
        self._run.log(dict(metrics))
        self._run.status()  # What is logged is only handed on; this waits for an answer, and finds a service that died.

    def _take_spare(self, error: Exception) -> None:
        """Go on with an offline run, which gets all points since the start from the record: the first may lack some."""
        import wandb

        self._mode, self._is_spare = "offline", True
        with contextlib.suppress(Exception):
            _within(CALL_S, wandb.teardown)
        self._run = _within(CALL_S, self._start)
        self._name_run()
        with self._record.open("rb") as file:
            file.seek(self._record_start)
            for line in whole_lines(file.read(), self._record):
                self._run.log({name: value for name, value in json.loads(line).items() if name != NOT_FINITE})
        self._warn(
            f"WandB cannot be reached ({_first_line(error)}), training goes on without it. "
            f"{_how_to_send(self._run_folder())}"
        )

    def _begin(self, step: int) -> None:
        self._first_step = step
        self._record_start = self._record.stat().st_size

    def _name_run(self) -> None:
        if self._first_step:
            self._run.name = f"{self._folder.name} after step {self._first_step}"

    def _run_folder(self) -> Path:
        return Path(self._run.dir).parent


def _how_to_send(folder: Path) -> str:
    """Say where the records are; whatever a run has sent or not is in its folder."""
    return f"Its records are kept; send them later with `wandb sync {folder}`"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Return what a call returns, or raise what it raises, in time.

    Raises:
        TimeoutError: It did neither; it is left behind in a thread that keeps no process alive.
    """
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - raised below, in the thread of the caller
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="wandb")
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return results[0]

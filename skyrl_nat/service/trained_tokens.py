"""What training said of every token of a step: `rollouts/trained_STEP.npz`, beside the rollouts."""

import functools
import itertools
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from skyrl_nat.rollouts.recorder import trained_file
from skyrl_nat.service.run_folders import RunFolder


@dataclass(frozen=True, slots=True)
class TrainedColumns:
    """One entry per sampled token."""

    logprobs: list[float]
    advantages: list[float]
    clipped: list[bool]

    def at(self, number: int) -> dict[str, float | bool | None]:
        """Return what is known of a sampled token; numbers that are not finite are None."""
        logprob, advantage = self.logprobs[number], self.advantages[number]
        return {
            "trainer_logprob": logprob if math.isfinite(logprob) else None,
            "advantage": advantage if math.isfinite(advantage) else None,
            "clipped": self.clipped[number],
        }


class TrainedTokens:
    """The file of one step."""

    def __init__(self, columns: dict[str, NDArray]) -> None:
        """Take the arrays that `RolloutRecorder.write_trained` wrote."""
        self._columns = columns
        borders = [0, *itertools.accumulate(int(size) for size in columns["sizes"])]
        self._places = {
            str(name): slice(*ends)
            for name, ends in zip(columns["sample_ids"], itertools.pairwise(borders), strict=True)
        }

    def of(self, rollout_id: str, *, num_sampled: int, num_segments: int) -> TrainedColumns | None:
        """Return the columns of a rollout, its segments in order; None where it was not trained on as it is here."""
        names = [rollout_id, *(f"{rollout_id}#{number}" for number in range(num_segments))]
        places = [self._places[name] for name in names if name in self._places]
        logprobs, advantages, clipped = (
            [value for place in places for value in self._columns[name][place].tolist()]
            for name in ("logprobs", "advantages", "clipped")
        )
        return TrainedColumns(logprobs, advantages, clipped) if len(logprobs) == num_sampled > 0 else None


def read_trained(run: RunFolder, step: int) -> TrainedTokens | None:
    """Return what training said of a step; None where it was not recorded or cannot be read."""
    path = run.file("rollouts", trained_file(Path(), step).name)
    try:
        return None if path is None else _read(path, path.stat().st_mtime_ns)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


@functools.lru_cache(maxsize=8)
def _read(path: Path, changed: int) -> TrainedTokens:
    del changed
    with np.load(path, allow_pickle=False) as file:
        return TrainedTokens({name: file[name] for name in file.files})

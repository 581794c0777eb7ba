"""What of a rank goes into a checkpoint, and comes back from one: tensors, counters, random numbers."""

from abc import abstractmethod
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from skyrl_nat.checkpoint.sharded import load_sharded, names_in, save_sharded
from skyrl_nat.workers import process_group
from skyrl_nat.workers.base import ModelWorker
from skyrl_nat.workers.random_state import new_seed, random_tensors, seed_random, set_random
from skyrl_nat.workers.snapshot import Snapshot

RANDOM = "random."
"""Beginning of the names of random states; the rank comes next."""


class CheckpointedWorker(ModelWorker):
    """One rank that can save what it is and go on from it. All ranks call each method together."""

    num_steps = 0
    """Optimizer steps applied."""
    num_skipped = 0
    """Steps skipped because of their gradients, in all."""
    num_skipped_in_a_row = 0
    _snapshot: Snapshot | None = None
    _taken: tuple[dict[str, Tensor], dict[str, int]] = {}, {}
    _group: Any = None
    """Of ranks that write in the background: their messages must not meet those of training."""

    def save(self, folder: str | Path) -> None:
        """Write model, optimizer, step counters and random numbers as a sharded checkpoint.

        Args:
            folder: The same shared folder on all ranks.

        Raises:
            CheckpointError: Writing failed; on all ranks then.
        """
        tensors, counters = self._state()
        save_sharded(Path(folder), tensors, counters, self._value_of)

    def snapshot(self) -> None:
        """Copy all that `save` would write to host memory, for `write`; training may go on afterwards."""
        if self._group is None:
            self._group = dist.new_group(backend="gloo")
        self._snapshot = self._snapshot or Snapshot()
        self._taken = self._state()
        self._snapshot.take(self._taken[0].values(), self._value_of)

    def write(self, folder: str | Path) -> None:
        """Write the last snapshot as `save` would have then; may run in another thread beside training.

        Args:
            folder: The same shared folder on all ranks.

        Raises:
            CheckpointError: Writing failed; on all ranks then.
        """
        assert self._snapshot is not None
        # A thread begins with the first GPU of its process.
        process_group.rank_device(self.device_type)
        save_sharded(Path(folder), *self._taken, self._snapshot.value_of, self._group)

    def load(self, folder: str | Path) -> None:
        """Take all that `save` wrote from a checkpoint of any number of ranks.

        Random numbers go on where they were if the number of ranks is the same; else they begin anew, from seed, step
        and rank.

        Args:
            folder: Written by `save` or `write`.

        Raises:
            CheckpointError: The folder is missing, incomplete or holds another model.
        """
        self.onload()
        states = random_tensors(self.device)
        saved = {name for name in names_in(Path(folder)) if name.startswith(RANDOM)}
        is_same = saved == {f"{RANDOM}{rank}.{kind}" for rank in range(dist.get_world_size()) for kind in states}
        own = self._random_names(states) if is_same else {}
        counters = load_sharded(Path(folder), {**self._state_tensors(), **own}, self._counters())
        for name, value in counters.items():
            setattr(self, name, value)
        if is_same:
            set_random(states, self.device)
        else:
            seed_random(new_seed(self.seed, self.num_steps, self.rank))

    def close(self) -> None:
        """Drop the model and leave the process group; safe to call twice."""
        self._snapshot, self._taken, self._group = None, ({}, {}), None
        super().close()

    @abstractmethod
    def _state_tensors(self) -> dict[str, Tensor]:
        """Return this rank's part of model and optimizer by name, to be read or filled in place."""

    def _state(self) -> tuple[dict[str, Tensor], dict[str, int]]:
        """Return tensors and counters as they are now; tensors of the model are not copied."""
        return {**self._state_tensors(), **self._random_names(random_tensors(self.device))}, self._counters()

    def _counters(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("num_steps", "num_skipped", "num_skipped_in_a_row")}

    def _random_names(self, states: dict[str, Tensor]) -> dict[str, Tensor]:
        return {f"{RANDOM}{self.rank}.{kind}": state for kind, state in states.items()}

    def _value_of(self, tensor: Tensor) -> Tensor:
        """Return a tensor as it is in host memory if it is there."""
        for memory in self._host.values():
            tensor = memory.value_of(tensor)
        return tensor

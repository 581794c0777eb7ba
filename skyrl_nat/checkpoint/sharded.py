"""Model, optimizer and counters as a torch distributed checkpoint (DCP): any number of ranks can load it."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from skyrl_nat.checkpoint.safe_reading import SafeReader
from skyrl_nat.errors import CheckpointError


def state_tensors(
    parameters: Iterable[tuple[str, nn.Parameter]], optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    """Return all tensors of model and optimizer by name, without copies.

    Args:
        parameters: Names and parameters, each once.
        optimizer: With its state present.
    """
    state: dict[str, Tensor] = {}
    for name, parameter in parameters:
        state[f"model.{name}"] = parameter.detach()
        for key, value in optimizer.state[parameter].items():
            state[f"optimizer.{name}.{key}"] = value
    return state


def save_sharded(
    folder: Path,
    tensors: Mapping[str, Tensor],
    counters: Mapping[str, int],
    value_of: Callable[[Tensor], Tensor],
    group: ProcessGroup | None = None,
) -> None:
    """Write every rank's shards; all ranks of the process group must call this together.

    Args:
        folder: Created if missing, must be the same shared folder on all ranks.
        tensors: Of model and optimizer, by name; see `state_tensors`.
        counters: Integers of the run, equal on all ranks.
        value_of: Returns where the values of a rank's own part are, if its memory was given up; same shape and format.
        group: Whose ranks call this; None for all.

    Raises:
        CheckpointError: Writing failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = {**tensors, **{f"counter.{name}": torch.tensor(value) for name, value in counters.items()}}
    try:
        save(state, checkpoint_id=folder, planner=_SavePlanner(value_of), process_group=group)
    except (CheckpointException, OSError) as error:
        raise CheckpointError(
            f"the checkpoint must be written to {folder}, got: {_cause(error)}. Check free space and permissions."
        ) from error


def names_in(folder: Path) -> set[str]:
    """Return the names of all tensors in a checkpoint.

    Raises:
        CheckpointError: The folder is missing, incomplete or holds what no checkpoint holds.
    """
    if not (folder / ".metadata").is_file():
        raise CheckpointError(
            f"{folder} must hold a complete sharded checkpoint, got no .metadata file. "
            "Choose a checkpoint whose saving was finished."
        )
    return set(SafeReader(folder).read_metadata().state_dict_metadata)


def load_sharded(
    folder: Path,
    tensors: Mapping[str, Tensor],
    counters: Iterable[str],
) -> dict[str, int]:
    """Fill tensors of model and optimizer in place; all ranks must call this together.

    Args:
        folder: Written by `save_sharded`, by any number of ranks.
        tensors: As they were saved, by name.
        counters: Names to read.

    Returns:
        The counters.

    Raises:
        CheckpointError: The folder is missing, incomplete or holds another model.
    """
    names_in(folder)
    numbers = {f"counter.{name}": torch.tensor(0) for name in counters}
    try:
        load({**tensors, **numbers}, storage_reader=SafeReader(folder))
    except (CheckpointException, OSError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint in {folder} must fit the model and be complete, got: {_cause(error)}. "
            "Resume with the model that the run was started with."
        ) from error
    return {name.removeprefix("counter."): int(value) for name, value in numbers.items()}


class _SavePlanner(DefaultSavePlanner):
    """Writes values from where they are: those in host memory need not come back to a device that is in use."""

    def __init__(self, value_of: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._value_of = value_of

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """Return what is written of one item."""
        found = super().transform_object(write_item, object)
        return self._value_of(found) if isinstance(found, Tensor) else found


def _cause(error: BaseException) -> str:
    """Return the first rank's own error in one line; torch prints a traceback of every rank.

    What the disk said comes first: while torch closes a file that the disk refused, it raises another error.
    """
    if isinstance(error, CheckpointException):
        error = next((failure[0] for failure in error.failures.values()), error)
    before: BaseException | None = error
    while before is not None and not isinstance(before, OSError):
        before = before.__context__
    error = before or error
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"

"""Weights from a Hugging Face folder into a model's shards: one tensor at a time, and of it this rank's run alone.

No process ever holds more than its own part of the model and one tensor's part beside it.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from skyrl_nat.errors import WorkerError
from skyrl_nat.workers import zero3
from skyrl_nat.workers.process_group import full_shape

_IGNORED = r"rotary_emb\.inv_freq$|(^|\.)position_ids$"
"""Buffers that old checkpoints hold and models compute."""


class WeightFiles:
    """The tensors of a folder's safetensors files by name."""

    def __init__(self, folder: Path) -> None:
        """Read the heads of all files.

        Raises:
            WorkerError: A file is missing or damaged.
        """
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, Path] = {}
        for file in _safetensors_of(folder):
            try:
                with safe_open(file, framework="pt") as opened:
                    for name in opened.keys():  # noqa: SIM118 - not a dict
                        self.shapes[name] = tuple(opened.get_slice(name).get_shape())
                        self._files[name] = file
            except (OSError, SafetensorError) as error:
                raise WorkerError(
                    f"model.path must hold complete safetensors files, got {file.name}: {error}. Copy the model again."
                ) from error

    def read(self, name: str, run: slice) -> Tensor:
        """Return a run of a tensor's elements, flat, in its own format, in host memory; only their rows are read."""
        width = math.prod(self.shapes[name][1:])
        first, last = run.start // width, -(-run.stop // width)
        # A file that stays open keeps in memory whatever was read of it.
        with safe_open(self._files[name], framework="pt") as opened:
            rows = opened.get_slice(name)[first:last] if self.shapes[name] else opened.get_tensor(name)
        return rows.flatten()[run.start - first * width :][: run.stop - run.start]


def own_run(parameter: Tensor) -> slice:
    """Return which elements of the flat whole a rank holds."""
    if zero3.is_partitioned(parameter):
        return zero3.own_run(parameter)
    rows, width = _own_rows(parameter), math.prod(parameter.shape[1:])
    return slice(rows.start * width, rows.stop * width)


def _own_rows(parameter: Tensor) -> slice:
    """Return which rows of the whole a rank holds: FSDP2 cuts the first dimension like `torch.chunk`."""
    if not isinstance(parameter, DTensor):
        return slice(0, parameter.shape[0] if parameter.ndim else 1)
    mesh, size = parameter.device_mesh, parameter.shape[0]
    for dimension, placement in enumerate(parameter.placements):
        if placement.is_shard():
            length = -(-size // mesh.size(dimension))
            first = min(length * mesh.get_local_rank(dimension), size)
            return slice(first, min(first + length, size))
    return slice(0, size)


def own_parts(parameter: Tensor) -> list[Tensor]:
    """Return the memory of a rank's run; ZeRO-3 has two where it computes with other weights than it trains."""
    if zero3.is_partitioned(parameter):
        return zero3.own_parts(parameter)
    local = parameter.detach()
    return [local.to_local() if isinstance(local, DTensor) else local]


def fill(parameters: Mapping[nn.Parameter, list[str]], folder: Path, ignored: Iterable[str] = ()) -> None:
    """Fill parameters in place with this rank's run of the checkpoint, converted to their format.

    Args:
        parameters: Every parameter that the checkpoint should hold, with the names it may have there: tied ones have
            several, of which at least one is there.
        folder: With safetensors files.
        ignored: Patterns of names in the checkpoint that the model does without.

    Raises:
        WorkerError: Names or shapes of checkpoint and model differ, or tied tensors differ in the checkpoint.
    """
    files = WeightFiles(folder)
    _check(parameters, files, "|".join((_IGNORED, *ignored)))
    for parameter, names in parameters.items():
        run = own_run(parameter)
        if run.start == run.stop:
            continue
        first, *others = [name for name in names if name in files.shapes]
        values = files.read(first, run)
        for other in others:
            if not torch.equal(values, files.read(other, run)):
                raise WorkerError(
                    f"model.path must hold equal tensors {first} and {other}, which its config ties, got different "
                    "ones. Set tie_word_embeddings to false in its config.json."
                )
        for part in own_parts(parameter):
            part.copy_(values.view(part.shape))


def _check(parameters: Mapping[nn.Parameter, list[str]], files: WeightFiles, ignored: str) -> None:
    """Refuse a checkpoint of another model, with all that is wrong."""
    known = {name: full_shape(parameter) for parameter, names in parameters.items() for name in names}
    faults = [
        f"{names[0]} is missing" for names in parameters.values() if not any(name in files.shapes for name in names)
    ]
    for name, shape in files.shapes.items():
        if name not in known:
            faults += [] if re.search(ignored, name) else [f"{name} is unexpected"]
        elif shape != known[name]:
            faults.append(f"{name} has the shape {list(shape)} instead of {list(known[name])}")
    if faults:
        more = f" and {len(faults) - 8} more" if len(faults) > 8 else ""
        raise WorkerError(
            f"model.path must hold the weights that its config.json describes, got: {', '.join(faults[:8])}{more}. "
            "Save the model again with save_pretrained."
        )


def _safetensors_of(folder: Path) -> list[Path]:
    """Return the weight files of a folder: one, or those that an index names."""
    whole = folder / "model.safetensors"
    if whole.is_file():
        return [whole]
    index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    return [folder / name for name in sorted(set(index["weight_map"].values()))]

"""Weights from a Hugging Face folder into a model's shards: one tensor at a time, and of it this rank's rows alone.

No process ever holds more than its own part of the model and one tensor's part beside it.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from skyrl_nat.errors import WorkerError

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

    def read(self, name: str, rows: slice) -> Tensor:
        """Return rows of a tensor, in its own format, in host memory."""
        # A file that stays open keeps in memory whatever was read of it.
        with safe_open(self._files[name], framework="pt") as opened:
            return opened.get_slice(name)[rows] if self.shapes[name] else opened.get_tensor(name)


def own_rows(parameter: Tensor) -> slice:
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


def fill(parameters: Mapping[nn.Parameter, list[str]], folder: Path, ignored: Iterable[str] = ()) -> None:
    """Fill parameters in place with this rank's rows of the checkpoint, converted to their format.

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
        local = parameter.detach()
        local = local.to_local() if isinstance(local, DTensor) else local
        rows = own_rows(parameter)
        if not local.numel():
            continue
        first, *others = [name for name in names if name in files.shapes]
        values = files.read(first, rows)
        for other in others:
            if not torch.equal(values, files.read(other, rows)):
                raise WorkerError(
                    f"model.path must hold equal tensors {first} and {other}, which its config ties, got different "
                    "ones. Set tie_word_embeddings to false in its config.json."
                )
        local.copy_(values)


def _check(parameters: Mapping[nn.Parameter, list[str]], files: WeightFiles, ignored: str) -> None:
    """Refuse a checkpoint of another model, with all that is wrong."""
    known = {name: tuple(parameter.shape) for parameter, names in parameters.items() for name in names}
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

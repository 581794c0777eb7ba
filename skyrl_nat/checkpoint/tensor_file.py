"""A safetensors file whose tensors are written as they come, in any order: one of them is in memory."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

_NAMES = {"float64": "F64", "float32": "F32", "bfloat16": "BF16", "float16": "F16"}
_ALIGNMENT = 8


class TensorFile:
    """One file; whole once every tensor was written."""

    def __init__(self, path: Path, shapes: Mapping[str, Sequence[int]], dtype: str) -> None:
        """Make the file with room for all tensors.

        Args:
            path: Replaced if it is there.
            shapes: Of its tensors.
            dtype: Their torch dtype name.
        """
        self.path = path
        width = getattr(torch, dtype).itemsize
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        offsets: dict[str, int] = {}
        end = 0
        for name, shape in shapes.items():
            offsets[name], end = end, end + math.prod(shape) * width
            header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [offsets[name], end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % _ALIGNMENT)
        beginning = len(text).to_bytes(8, "little") + text
        self._places = {name: len(beginning) + offset for name, offset in offsets.items()}
        with path.open("wb") as stream:
            stream.write(beginning)
            stream.truncate(len(beginning) + end)

    def write(self, name: str, tensor: Tensor) -> None:
        """Put a tensor into its place."""
        data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        with self.path.open("r+b") as stream:
            stream.seek(self._places[name])
            data.tofile(stream)

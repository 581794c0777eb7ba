"""What an engine expects on the wire: names, shapes and dtype, read from its model folder."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from skyrl_nat.errors import WeightSyncError
from skyrl_nat.weight_sync.base import TensorSpec

TIED_HEAD = "lm_head.weight"
"""Name of the output projection; a model that ties it to the embedding may leave it out."""

_MAX_LISTED = 10


def read_expected_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor of a checkpoint by name, from the safetensors headers alone.

    Raises:
        WeightSyncError: The folder holds no safetensors file.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise WeightSyncError(
            f"A model folder must hold *.safetensors files, found none in {folder}. "
            "Save the model with `save_pretrained`."
        )
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        for name, entry in _read_header(file).items():
            if name != "__metadata__":
                shapes[name] = tuple(entry["shape"])
    return shapes


def find_problems(
    manifest: Sequence[TensorSpec],
    expected: Mapping[str, tuple[int, ...]],
    *,
    dtype: str,
    is_tied: bool,
) -> list[str]:
    """Return what is wrong with a manifest, one entry per tensor; empty if nothing is.

    Args:
        manifest: What is about to be sent.
        expected: Shapes by name, from `read_expected_shapes`.
        dtype: torch dtype name that every tensor must travel in.
        is_tied: Whether `lm_head.weight` is the embedding; it may then be sent or left out.
    """
    problems: list[str] = []
    seen: set[str] = set()
    for spec in manifest:
        if spec.name in seen:
            problems.append(f"{spec.name}: sent twice")
        seen.add(spec.name)
        shape = expected.get(spec.name)
        if shape is None and not (is_tied and spec.name == TIED_HEAD):
            problems.append(f"{spec.name}: unknown")
        elif shape is not None and tuple(spec.shape) != shape:
            problems.append(f"{spec.name}: shape {tuple(spec.shape)}, not {shape}")
        if spec.dtype != dtype:
            problems.append(f"{spec.name}: dtype {spec.dtype}, not {dtype}")
    optional = {TIED_HEAD} if is_tied else set()
    problems.extend(f"{name}: missing" for name in expected if name not in seen | optional)
    return problems


def find_payload_problems(manifest: Sequence[TensorSpec], payload: Mapping[str, Tensor]) -> list[str]:
    """Return how tensors handed over differ from their manifest; empty if they agree."""
    problems = []
    for spec in manifest:
        tensor = payload.get(spec.name)
        if tensor is None:
            problems.append(f"{spec.name}: announced but not sent")
            continue
        found = spec_of(spec.name, tensor)
        if found.shape != tuple(spec.shape) or found.dtype != spec.dtype:
            problems.append(f"{spec.name}: {found.dtype} {found.shape}, announced as {spec.dtype} {tuple(spec.shape)}")
    announced = {spec.name for spec in manifest}
    problems.extend(f"{name}: sent but not announced" for name in payload if name not in announced)
    return problems


def describe_problems(problems: Sequence[str]) -> str:
    """Return one error message for a list of problems; empty if there are none."""
    if not problems:
        return ""
    rest = len(problems) - _MAX_LISTED
    more = f" and {rest} more" if rest > 0 else ""
    return (
        "A push must bring every tensor that the engine expects once, with its name, shape and dtype; found "
        f"{'; '.join(problems[:_MAX_LISTED])}{more}. Compare the policy's `weight_manifest` with the "
        "engine's model folder."
    )


def spec_of(name: str, tensor: Tensor) -> TensorSpec:
    """Return the spec under which a tensor travels."""
    return TensorSpec(name=name, shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))


def _read_header(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        return json.loads(stream.read(length))

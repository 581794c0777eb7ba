"""Adapters on their own: refused where they do not belong to their model."""

import json
import math
from pathlib import Path

import torch
from safetensors import safe_open

from skyrl_nat.checkpoint.adapters import ADAPTER
from skyrl_nat.export.hf import Weights, refuse

WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_MATRICES = (".lora_A.weight", ".lora_B.weight")


def scale(adapter: Path) -> float:
    """Return what the product of an adapter's matrices is multiplied by: alpha / r, or alpha / sqrt(r)."""
    config = json.loads((adapter / ADAPTER).read_text(encoding="utf-8"))
    rank = int(config["r"])
    return float(config["lora_alpha"]) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def check_adapter(adapter: Path, base: Path) -> None:
    """Refuse an adapter that does not belong to a model: an engine would leave what it does not know out in silence.

    Args:
        adapter: Folder as peft saves it.
        base: Folder of the model.

    Raises:
        ExportError: With every tensor that is not finite, has another shape or no counterpart in the model.
    """
    if not (adapter / WEIGHTS).is_file() or not (adapter / WEIGHTS).stat().st_size:
        refuse(adapter, [f"{WEIGHTS} is missing or empty"])
    weights, faults = Weights(base), []
    rank = int(json.loads((adapter / ADAPTER).read_text(encoding="utf-8"))["r"])
    found: dict[str, set[str]] = {}
    with safe_open(adapter / WEIGHTS, framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118 - not a dict
            tensor = opened.get_tensor(name)
            matrix = next((end for end in _MATRICES if name.endswith(end)), "")
            target = name.removeprefix(_PREFIX).removesuffix(matrix) + ".weight"
            if not name.startswith(_PREFIX) or not matrix or target not in weights.files:
                faults.append(f"{name} belongs to no weight of the model")
                continue
            found.setdefault(target, set()).add(matrix)
            rows, columns = weights.shape(target)
            wanted = (rank, columns) if matrix == _MATRICES[0] else (rows, rank)
            if tuple(tensor.shape) != wanted:
                faults.append(f"{name} has the shape {list(tensor.shape)} instead of {list(wanted)}")
            if not torch.isfinite(tensor).all():
                faults.append(f"{name} holds numbers that are not finite")
    faults += [f"{target} has one matrix of two" for target, matrices in found.items() if len(matrices) < 2]
    refuse(adapter, faults if found or faults else ["it holds no matrices"])

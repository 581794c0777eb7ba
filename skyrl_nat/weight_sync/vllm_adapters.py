"""What runs inside vLLM's workers where adapters are pushed apart from the weights that they belong to.

vLLM keeps the adapter's matrices in fixed buffers, so that CUDA graphs see new values. Only `vllm_worker` imports this.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from vllm.lora.lora_model import LoRAModel
from vllm.lora.lora_weights import LoRALayerWeights
from vllm.platforms import current_platform

from skyrl_nat.errors import WeightSyncError
from skyrl_nat.weight_sync.adapters import ADAPTER_ID, DOWN, UP
from skyrl_nat.weight_sync.base import tensor_digest


class PlainProducts:
    """Adds the products of the one adapter; takes the place of vLLM's code for CPUs.

    That code copies both matrices for every token of a batch.
    """

    def add_lora_linear(
        self,
        y: Tensor,
        x: Tensor,
        lora_a_stacked: Sequence[Tensor],
        lora_b_stacked: Sequence[Tensor],
        scale: float,
        output_slices: Sequence[int],
        **_: Any,
    ) -> None:
        """Add `scale * B A x` to every slice of `y` in place.

        Args:
            y: `[N, sum of output_slices]`.
            x: `[N, in]`.
            lora_a_stacked: For each slice `[1, 1, rank, in]`.
            lora_b_stacked: For each slice `[1, 1, out, rank]`.
            scale: vLLM's factor.
            output_slices: Columns of each slice.
        """
        start = 0
        for down, up, size in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
            y[:, start : start + size].addmm_(x @ down[0, 0].T, up[0, 0].T, alpha=scale)
            start += size


def start_adapter(manager: Any, shapes: Mapping[str, Sequence[int]]) -> None:
    """Put an adapter of zeros in place, so that requests of all times go through one.

    Args:
        manager: vLLM's `LoRAModelManager`.
        shapes: Of all matrices by name.
    """
    if current_platform.is_cpu():
        for module in manager.modules.values():
            module.set_mapping(PlainProducts())
    dtype = manager.lora_config.lora_dtype
    replace_adapter(manager, {name: torch.zeros(*shape, dtype=dtype) for name, shape in shapes.items()})


def replace_adapter(manager: Any, tensors: Mapping[str, Tensor]) -> None:
    """Put new matrices in the place of the adapter's.

    Args:
        manager: vLLM's `LoRAModelManager`.
        tensors: A and alpha / rank * B of every adapted layer by name.

    Raises:
        WeightSyncError: vLLM has no place for some; nothing is changed then.
    """
    layers = {}
    for name, down in tensors.items():
        if name.endswith(DOWN):
            path = name.removesuffix(DOWN)
            rank = down.shape[0]
            layers[path] = LoRALayerWeights(path, rank, rank, down, tensors[path + UP])
    unknown = sorted(layers.keys() - _places(manager).keys())
    if unknown:
        raise WeightSyncError(
            f"Every adapted layer must be one that vLLM adapts too, found {len(unknown)} others: "
            f"{', '.join(unknown[:3])}. Set engine.adapters=merged."
        )
    rank = max(layer.rank for layer in layers.values())
    manager.remove_adapter(ADAPTER_ID)
    manager.add_adapter(LoRAModel(ADAPTER_ID, rank, layers))
    manager.activate_adapter(ADAPTER_ID)


def read_live_adapter(manager: Any, shapes: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, Tensor]]:
    """Yield the matrices that one worker computes with.

    Args:
        manager: vLLM's `LoRAModelManager`.
        shapes: Of all matrices by name; decides where fillings end.
    """
    if manager.lora_index_to_id != [ADAPTER_ID]:
        raise WeightSyncError(f"vLLM must hold the adapter, found {manager.lora_index_to_id}. Push again.")
    places = _places(manager)
    for name, (rows, columns) in shapes.items():
        module, index = places[name.removesuffix(DOWN).removesuffix(UP)]
        stacked = module.lora_a_stacked if name.endswith(DOWN) else module.lora_b_stacked
        yield name, stacked[index][0, 0, :rows, :columns]


def digests_of_files(folder: Path, names: Mapping[str, Any], dtype: torch.dtype) -> dict[str, str]:
    """Return digests of a folder's tensors in the format in which vLLM loaded them."""
    digests: dict[str, str] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            found = [name for name in tensors.keys() if name in names]  # noqa: SIM118 - not a dict
            digests |= {name: tensor_digest(tensors.get_tensor(name).to(dtype)) for name in found}
    return digests


def _places(manager: Any) -> dict[str, tuple[Any, int]]:
    """Return vLLM's layer, and the slice of a fused one, for every checkpoint path that may have an adapter."""
    return {
        path: (module, index)
        for name, module in manager.modules.items()
        for index, path in enumerate(manager.packed_modules.get(name, [name]))
    }

"""DeepSpeed ZeRO-3 around one model: weights, gradients and optimizer state lie in equal parts on the ranks.

A parameter's part is a flat run of its elements, the last rank's padded. No op of DeepSpeed's own is
compiled: AdamW is torch's, and collectives are torch.distributed's.
"""

import os
import warnings
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from skyrl_nat.config.model import Dtype, ModelConfig
from skyrl_nat.errors import ConfigError

MOMENTS = ("exp_avg", "exp_avg_sq")
BUCKET_ELEMENTS = 50_000_000
"""Gradients are reduced, and parameters fetched ahead, in buffers of about this size."""


def library(device: str) -> Any:
    """Return DeepSpeed, imported for a kind of device.

    Args:
        device: `cpu` or `cuda`.

    Raises:
        ConfigError: It is not installed.
    """
    os.environ["DS_ACCELERATOR"] = device
    try:
        deepspeed = import_module("deepspeed")
    except ImportError as error:
        raise ConfigError(
            f"cluster.strategy=deepspeed needs the library deepspeed, which cannot be imported: {error}. "
            "pip install deepspeed==0.19.8"
        ) from error
    # The answer to "which ops can be compiled here?": on CPUs it would compile one with g++, for a minute.
    deepspeed.ops.__compatible_ops__ = {}
    return deepspeed


def settings(model: ModelConfig, max_grad_norm: float) -> dict[str, Any]:
    """Return DeepSpeed's config.

    Args:
        model: Section `model`.
        max_grad_norm: 0 turns clipping off.
    """
    return {
        "train_micro_batch_size_per_gpu": 1,
        # A step ends where `step` is called, after any number of micro-batches.
        "managed_gradient_accumulation": False,
        "gradient_clipping": max_grad_norm,
        "bf16": {"enabled": model.compute_dtype == Dtype.bfloat16},
        "communication_data_type": "fp32",
        "data_types": {"grad_accum_dtype": "fp32"},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": 3,
            "reduce_bucket_size": BUCKET_ELEMENTS,
            "stage3_prefetch_bucket_size": BUCKET_ELEMENTS,
            # Small parameters are cut too: none has a second copy that would have to follow a loaded checkpoint.
            "stage3_param_persistence_threshold": 0,
        },
    }


def cut(module: nn.Module, config: dict[str, Any], device: torch.device) -> dict[nn.Parameter, Tensor]:
    """Give a model's parameters memory, in equal parts on the ranks, and move its buffers.

    DeepSpeed cuts parameters that are whole: one after the other is, without values, in a buffer for all of them. All
    ranks must call this together.

    Args:
        module: Its parameters have no memory, or lie on the CPU; they are replaced.
        config: From `settings`.
        device: Of this rank.

    Returns:
        The values of those that had memory, whole and not rounded, by the parameters in their place.
    """
    deepspeed = library(device.type)
    # What DeepSpeed's own launcher would set; on CPUs, the second spares it a look at the sockets.
    os.environ |= {"LOCAL_RANK": str(device.index or 0), "LOCAL_SIZE": str(dist.get_world_size())}
    warnings.filterwarnings("ignore", message=".*is deprecated. Please use `torch.distributed", category=FutureWarning)
    compute_dtype = torch.bfloat16 if config["bf16"]["enabled"] else torch.float32
    buffer = torch.empty(max(p.numel() for p in module.parameters()), dtype=compute_dtype, device=device)
    # A tied parameter has several places.
    parameters: dict[Tensor, nn.Parameter] = {}
    for part in module.modules():
        for name, given in list(part.named_parameters(recurse=False)):
            if given not in parameters:
                parameters[given] = nn.Parameter(buffer[: given.numel()].view(given.shape), given.requires_grad)
                alone = nn.ParameterList([parameters[given]])
                deepspeed.zero.Init(module=alone, config_dict_or_path=config, dtype=compute_dtype)
            setattr(part, name, parameters[given])
        for name, values in part.named_buffers(recurse=False):
            setattr(part, name, values.to(device))
    return {parameter: given.detach() for given, parameter in parameters.items() if not given.is_meta}


def build_engine(module: nn.Module, optimizer: torch.optim.AdamW | None, config: dict[str, Any]) -> Any:
    """Return the DeepSpeed engine of a model that `cut` has cut.

    Args:
        module: The model; its values may come later.
        optimizer: Over its trained parameters, without state; None for a model that is only computed with.
        config: From `settings`.
    """
    deepspeed = import_module("deepspeed")
    return deepspeed.initialize(model=module, optimizer=optimizer, config=config, dist_init_required=False)[0]


def is_partitioned(tensor: Tensor) -> bool:
    """Return whether a parameter was cut by DeepSpeed."""
    return hasattr(tensor, "ds_id")


def full_parameter(parameter: Any) -> Tensor:
    """Return a parameter in full, in memory of its own: the master weight where it is trained.

    All ranks must call this together.
    """
    deepspeed = import_module("deepspeed")
    if parameter.requires_grad:
        return deepspeed.utils.safe_get_full_fp32_param(parameter)
    with deepspeed.zero.GatheredParameters([parameter]):
        return parameter.detach().clone()


def own_run(parameter: Any) -> slice:
    """Return which elements of the flat whole this rank holds, without padding."""
    size = parameter.ds_tensor.ds_numel
    first = min(dist.get_rank() * size, parameter.ds_numel)
    return slice(first, min(first + size, parameter.ds_numel))


def own_parts(parameter: Any) -> list[Tensor]:
    """Return where this rank keeps its run: what is computed with and, of a trained parameter, the master weights."""
    computed = _without_padding(parameter.ds_tensor, parameter)
    return [computed, master_part(parameter)] if parameter.requires_grad else [computed]


def master_part(parameter: Any) -> Tensor:
    """Return this rank's part of the fp32 weight, without padding; shares its memory."""
    return _without_padding(import_module("deepspeed").utils.safe_get_local_fp32_param(parameter), parameter)


def state_tensors(parameters: Iterable[tuple[str, nn.Parameter]], mesh: DeviceMesh) -> dict[str, Tensor]:
    """Return master weights and AdamW's moments by name, flat and cut over the mesh, without copies.

    Args:
        parameters: Names and trained parameters.
        mesh: One-dimensional, of all ranks.
    """
    moment = import_module("deepspeed").utils.safe_get_local_optimizer_state
    state: dict[str, Tensor] = {}
    for name, parameter in parameters:
        parts = {f"model.{name}": master_part(parameter)}
        for key in MOMENTS:
            parts[f"optimizer.{name}.{key}"] = _without_padding(moment(parameter, key), parameter)
        shape = torch.Size([parameter.ds_numel])  # type: ignore[attr-defined]
        for key, part in parts.items():
            state[key] = DTensor.from_local(part, mesh, [Shard(0)], run_check=False, shape=shape, stride=(1,))
    return state


def follow_masters(engine: Any, parameters: Iterable[tuple[str, Any]]) -> None:
    """Give the weights that are computed with the values of the master weights, after these were filled from outside.

    Args:
        engine: Of the model.
        parameters: Names and trained parameters.
    """
    engine.empty_partition_cache()
    for _, parameter in parameters:
        computed, master = own_parts(parameter)
        computed.copy_(master)


def _without_padding(part: Tensor, parameter: Any) -> Tensor:
    run = own_run(parameter)
    return part.detach()[: run.stop - run.start]

"""DeepSpeed ZeRO-3 around one model: weights, gradients and optimizer state lie in equal parts on the ranks.

A parameter's part is a flat run of its elements, the last rank's padded with zeros. No op of DeepSpeed's own is
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
from skyrl_nat.workers.optimizer import init_state

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


def build_engine(
    module: nn.Module, optimizer: torch.optim.AdamW | None, config: dict[str, Any], device: torch.device
) -> Any:
    """Cut a model over the ranks in place and return its DeepSpeed engine.

    Args:
        module: In fp32, on the CPU.
        optimizer: Over its trained parameters, without state; None for a model that is only computed with.
        config: From `settings`.
        device: Of this rank.
    """
    deepspeed = library(device.type)
    # What DeepSpeed's own launcher would set; on CPUs, the second spares it a look at the sockets.
    os.environ |= {"LOCAL_RANK": str(device.index or 0), "LOCAL_SIZE": str(dist.get_world_size())}
    warnings.filterwarnings("ignore", message=".*is deprecated. Please use `torch.distributed", category=FutureWarning)
    compute_dtype = torch.bfloat16 if config["bf16"]["enabled"] else torch.float32
    masters = {id(parameter): parameter.data for parameter in module.parameters()}
    for parameter in module.parameters():
        parameter.data = parameter.data.to(compute_dtype)
    deepspeed.zero.Init(module=module, config_dict_or_path=config, dtype=compute_dtype)
    engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=config, dist_init_required=False)
    for part in module.modules():
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, buffer.to(device))
    if optimizer is not None:
        # DeepSpeed makes the master weights from the rounded ones.
        for parameter in module.parameters():
            if parameter.requires_grad:
                master_part(parameter).copy_(own_part(masters[id(parameter)].flatten(), parameter))
        init_state(optimizer, engine.optimizer.fp32_partitioned_groups_flat)
    return engine


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


def own_part(flat: Tensor, parameter: Any) -> Tensor:
    """Return this rank's run of a flat tensor, without padding; empty past its end."""
    size = parameter.ds_tensor.ds_numel
    return flat[dist.get_rank() * size :][:size]


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
        part = master_part(parameter)
        parameter.ds_tensor.data[: part.numel()].copy_(part)


def _without_padding(part: Tensor, parameter: Any) -> Tensor:
    start = dist.get_rank() * parameter.ds_tensor.ds_numel
    return part.detach()[: max(0, parameter.ds_numel - start)]

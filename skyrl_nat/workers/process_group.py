"""The torch.distributed group of one model's ranks: one per process, set up and torn down here only."""

import datetime

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from skyrl_nat.errors import WorkerError
from skyrl_nat.weight_sync.store import open_store
from skyrl_nat.workers import zero3

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
"""Back end by device type; CUDA ranks also reduce small host tensors."""


def init_group(device: str, rank: int, world_size: int, address: str, port: int, timeout_s: float) -> None:
    """Join the process group; returns when all ranks are there.

    A process that already belongs to a group of the same rank and size keeps it.

    Args:
        device: `cpu` or `cuda`.
        rank: This process, in `[0, world_size)`.
        world_size: Number of processes.
        address: Host of rank 0, reachable from all.
        port: A free port there.
        timeout_s: Deadline of the meeting and of every collective.

    Raises:
        WorkerError: The ranks did not meet, or this process belongs to another group.
    """
    if dist.is_initialized():
        if (dist.get_rank(), dist.get_world_size()) == (rank, world_size):
            return
        raise WorkerError(
            f"a process must belong to one process group, got rank {rank} of {world_size} while being "
            f"rank {dist.get_rank()} of {dist.get_world_size()}. Call destroy_group first."
        )
    timeout = datetime.timedelta(seconds=timeout_s)
    try:
        store = open_store(address, port, world_size, timeout, is_master=rank == 0)
        dist.init_process_group(BACKENDS[device], store=store, rank=rank, world_size=world_size, timeout=timeout)
    except (RuntimeError, ValueError) as error:
        raise WorkerError(
            f"all {world_size} ranks must meet at {address}:{port} within {timeout_s} s, rank {rank} got: "
            f"{error}. Check that every rank started and that the port is reachable."
        ) from error


def destroy_group() -> None:
    """Leave the process group; safe to call twice."""
    if dist.is_initialized():
        dist.destroy_process_group()


def rank_device(device: str) -> torch.device:
    """Return this rank's device and make it the current one.

    Args:
        device: `cpu` or `cuda`.
    """
    if device == "cpu":
        return torch.device("cpu")
    index = dist.get_rank() % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def data_parallel_mesh(device: str, num_replicas: int = 1) -> DeviceMesh:
    """Return the mesh over all ranks: one dimension, or `[copies, ranks of a copy]`.

    A copy is of neighbouring ranks, which fill one node's GPUs before the next: with as many copies as nodes each is in
    one node.

    Args:
        device: `cpu` or `cuda`.
        num_replicas: Copies of the model; divides the number of ranks.
    """
    size = dist.get_world_size()
    if num_replicas == 1:
        return init_device_mesh(device, (size,), mesh_dim_names=("data",))
    return init_device_mesh(device, (num_replicas, size // num_replicas), mesh_dim_names=("replicate", "shard"))


def full_tensor(tensor: Tensor) -> Tensor:
    """Return a parameter or gradient in full and detached; all ranks of its mesh must call this together."""
    if zero3.is_partitioned(tensor):
        return zero3.full_parameter(tensor)
    tensor = tensor.detach()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def full_shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape of a parameter in full."""
    return tuple(getattr(tensor, "ds_shape", tensor.shape))

"""What policy and reference workers share: process group, sharded model, log-probs. Legend: N packed tokens."""

import functools
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.checkpoint.pretrained import resolve_model
from skyrl_nat.config.model import ModelConfig, Offload
from skyrl_nat.errors import WorkerError
from skyrl_nat.monitoring.usage import Activity, ActivityLog, Usage
from skyrl_nat.workers import process_group
from skyrl_nat.workers.attention import kernel_name
from skyrl_nat.workers.model import PackedCausalLM, build_packed_model, load_weights, reshard, shard
from skyrl_nat.workers.offload import HostMemory, timed
from skyrl_nat.workers.random_state import seed_random
from skyrl_nat.workers.sequence_parallel import join_sequence_ranks

P = ParamSpec("P")
R = TypeVar("R")
Method = Callable[Concatenate[Any, P], R]


def noted(activity: Activity) -> Callable[[Method[P, R]], Method[P, R]]:
    """Return a decorator that notes how long a method of `ModelWorker` keeps this rank's device busy."""

    def wrap(method: Method[P, R]) -> Method[P, R]:
        @functools.wraps(method)
        def run(self: "ModelWorker", *args: P.args, **kwargs: P.kwargs) -> R:
            with self.log.during(activity):
                result = method(self, *args, **kwargs)
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)
            return result

        return run

    return wrap


class ModelWorker:
    """One rank of a sharded model. Life: construct, `init_process_group`, `build`, use, `close`."""

    is_trainable = True
    """Whether parameters take gradients."""

    def __init__(
        self,
        *,
        model_path: str,
        model: ModelConfig,
        device: str,
        temperature: float,
        num_threads: int,
        seed: int,
        num_replicas: int = 1,
    ) -> None:
        """Remember the settings; nothing is loaded yet.

        Args:
            model_path: Folder, hub id or built-in name; replaces `model.path`.
            model: Section `model`.
            device: `cpu` or `cuda`.
            temperature: Sampling temperature whose log-probs are wanted, > 0.
            num_threads: CPU threads of this process; 0 leaves torch's own number.
            seed: Seed of this process.
            num_replicas: Copies of the model among the ranks.
        """
        self.model_path = model_path
        self.model_config = model
        self.device_type = device
        self.temperature = temperature
        self.num_threads = num_threads
        self.seed = seed
        self.num_replicas = num_replicas
        self.device = torch.device("cpu")
        self.group_address = "127.0.0.1"
        """Of rank 0, as all ranks and engines reach it."""
        self.log = ActivityLog()
        self.num_micro_batches = 0
        """Computed so far, for whoever watches progress."""
        self._module: PackedCausalLM | None = None
        self._host = {Offload.all: HostMemory(lambda: self.module.parameters())}
        """Host memory of what moves last; a subclass may put before it what moves earlier."""

    @property
    def module(self) -> PackedCausalLM:
        """The sharded model.

        Raises:
            WorkerError: `build` was not called.
        """
        if self._module is None:
            raise WorkerError(f"{type(self).__name__} must be built before use, got no model. Call build first.")
        return self._module

    @property
    def rank(self) -> int:
        """Rank in the process group, 0 without one."""
        return dist.get_rank() if dist.is_initialized() else 0

    def init_process_group(
        self, rank: int, world_size: int, master_address: str, master_port: int, timeout_s: float
    ) -> None:
        """Join the other ranks of this model; see `process_group.init_group`."""
        self.group_address = master_address
        process_group.init_group(self.device_type, rank, world_size, master_address, master_port, timeout_s)

    def attention_kernel(self) -> str:
        """Return what computes attention here; see `attention.kernel_name`."""
        return kernel_name(self.device_type, getattr(torch, str(self.model_config.compute_dtype)))

    def build(self) -> dict[str, float]:
        """Load and shard the model; all ranks call this together.

        Returns:
            `num_parameters` of the whole model.
        """
        if self.num_threads:
            torch.set_num_threads(self.num_threads)
        seed_random(self.seed % 2**32)
        self.device = process_group.rank_device(self.device_type)
        path = resolve_model(self.model_path)
        module = build_packed_model(
            path,
            self.model_config,
            temperature=self.temperature,
            is_trainable=self.is_trainable,
        )
        module.ranks = join_sequence_ranks(self.model_config.sequence_parallel_size)
        count = sum(parameter.numel() for parameter in module.parameters())
        self._lay_out(module, path)
        self._module = module
        return {"num_parameters": float(count)}

    @noted(Activity.TRAIN)
    def compute_logprobs(self, micro_batches: Sequence[MicroBatch]) -> list[Tensor]:
        """Return the log-probs of the loss tokens without gradients; all ranks call this together.

        Args:
            micro_batches: This rank's row of the grid, the same on ranks that share it; every rank has the same number.

        Returns:
            One `[N]` fp32 CPU tensor per micro-batch, 0 where masked.
        """
        results: list[Tensor] = []
        with self._host[Offload.all].resident(), torch.no_grad():
            for micro_batch in micro_batches:
                logprobs, _ = self._score(micro_batch.to(self.device))
                results.append(logprobs.cpu())
                self.num_micro_batches += 1
            self._give_back()
        return results

    def compute_likeliest(self, micro_batches: Sequence[MicroBatch], count: int) -> list[tuple[Tensor, Tensor]]:
        """Return the likeliest tokens in the place of each loss token; see `compute_logprobs`.

        Args:
            micro_batches: As for `compute_logprobs`.
            count: K, tokens wanted in each place.

        Returns:
            `[N, K]` ids and log-probs on the CPU per micro-batch, likeliest first, 0 where masked.
        """
        self.module.num_likeliest = count
        results: list[tuple[Tensor, Tensor]] = []
        try:
            with self._host[Offload.all].resident(), torch.no_grad():
                for micro_batch in micro_batches:
                    ids, logprobs = self._score(micro_batch.to(self.device))
                    results.append((ids.cpu(), logprobs.cpu()))
                self._give_back()
        finally:
            self.module.num_likeliest = 0
        return results

    @noted(Activity.OFFLOAD)
    def offload(self, what: Offload) -> dict[str, float]:
        """Move what is not computed with for a while to host memory, and give its device memory back.

        Args:
            what: `optimizer` or `all`; `none` moves nothing.

        Returns:
            `seconds` and `bytes`; what is in host memory already costs neither.
        """
        kinds = [kind for kind in self._host if what is Offload.all or kind is what]
        moved = timed(lambda: sum(self._host[kind].offload() for kind in kinds))
        self.release_memory()
        return moved

    @noted(Activity.OFFLOAD)
    def onload(self) -> dict[str, float]:
        """Bring back whatever is in host memory; returns `seconds` and `bytes`."""
        return timed(lambda: sum(memory.onload() for memory in self._host.values()))

    @noted(Activity.OFFLOAD)
    def release_memory(self) -> None:
        """Give memory that was freed after training back to the GPU, for the engine on it."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def usage(self) -> Usage:
        """Return what this rank did since the last call, and on which GPU."""
        card = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else ""
        return replace(self.log.take(), card=card)

    def ping(self) -> dict[str, int | str]:
        """Return who answers: process id, rank, host name."""
        return {"pid": os.getpid(), "rank": self.rank, "node": socket.gethostname()}

    def close(self) -> None:
        """Drop the model and leave the process group; safe to call twice."""
        self._module = None
        process_group.destroy_group()

    def _lay_out(self, module: PackedCausalLM, path: Path) -> None:
        """Cut the model over the ranks, in place, and load this rank's part."""
        shard(module, process_group.data_parallel_mesh(self.device_type, self.num_replicas), self.model_config)
        load_weights(module, path, self.device)

    def _give_back(self) -> None:
        """Give gathered parameters back after forward passes without backward passes."""
        reshard(self.module)

    def _score(self, micro_batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Return log-probs and entropies of a micro-batch on this rank's device."""
        return self.module.score(micro_batch)

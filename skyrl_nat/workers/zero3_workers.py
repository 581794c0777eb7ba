"""Policy and reference under DeepSpeed ZeRO-3: the same workers, with another layout over the ranks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.errors import WorkerError
from skyrl_nat.workers import process_group, zero3
from skyrl_nat.workers.base import ModelWorker
from skyrl_nat.workers.model import PackedCausalLM, load_weights, trained_parameters
from skyrl_nat.workers.optimizer import adamw
from skyrl_nat.workers.policy import PolicyWorker
from skyrl_nat.workers.reference import ReferenceWorker


class _Zero3Worker(ModelWorker):
    """One rank of a model that DeepSpeed holds."""

    _engine: Any = None

    @property
    def engine(self) -> Any:
        """DeepSpeed's engine.

        Raises:
            WorkerError: `build` was not called.
        """
        if self._engine is None:
            raise WorkerError(f"{type(self).__name__} must be built before use, got no engine. Call build first.")
        return self._engine

    def compute_logprobs(self, micro_batches: Sequence[MicroBatch]) -> list[Tensor]:
        """Return the log-probs of the loss tokens without gradients; see `ModelWorker.compute_logprobs`."""
        results = super().compute_logprobs(micro_batches)
        self.engine.empty_partition_cache()
        return results

    def close(self) -> None:
        """Drop engine and model and leave the process group; safe to call twice."""
        if self._engine is not None:
            self._engine.destroy()
            self._engine = None
        super().close()

    def _lay_out(self, module: PackedCausalLM, path: Path) -> None:
        load_weights(module, path, torch.device("cpu"))
        self._engine = self._build_engine(module)

    def _build_engine(self, module: PackedCausalLM) -> Any:
        return zero3.build_engine(module, None, zero3.settings(self.model_config, 0.0), self.device)

    def _score(self, micro_batch: MicroBatch) -> tuple[Tensor, Tensor]:
        return self.engine(**self.module.arguments(micro_batch))


class Zero3ReferenceWorker(_Zero3Worker, ReferenceWorker):
    """One rank of the reference, computed with as a ZeRO-3 model."""


class Zero3PolicyWorker(_Zero3Worker, PolicyWorker):
    """One rank of the policy; master weights and AdamW's state are fp32 and lie in equal parts on the ranks."""

    def load(self, folder: str | Path) -> None:
        """Take model, optimizer and step counters from a checkpoint of any number of ranks.

        Args:
            folder: Written by `save` under the same strategy.
        """
        super().load(folder)
        zero3.follow_masters(self.engine, trained_parameters(self.module))
        for state in self.optimizer.state.values():
            state["step"].fill_(self.num_steps)

    def _build_engine(self, module: PackedCausalLM) -> Any:
        optimizer = adamw(trained_parameters(module), self.optimizer_config)
        config = zero3.settings(self.model_config, self.optimizer_config.max_grad_norm)
        return zero3.build_engine(module, optimizer, config, self.device)

    def _build_optimizer(self) -> torch.optim.AdamW:
        return self.engine.optimizer.optimizer

    def _backward(self, loss: Tensor) -> None:
        # DeepSpeed averages over the ranks what is to be summed.
        self.engine.backward(loss * dist.get_world_size())

    def _apply_gradients(self) -> float:
        # A step whose norm is not finite changes nothing, and says infinity.
        self.engine.step()
        return float(self.engine.get_global_grad_norm())

    def _state_tensors(self) -> dict[str, Tensor]:
        mesh = process_group.data_parallel_mesh(self.device_type)
        return zero3.state_tensors(trained_parameters(self.module), mesh)

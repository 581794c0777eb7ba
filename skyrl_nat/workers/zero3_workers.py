"""Policy and reference under DeepSpeed ZeRO-3: the same workers, with another layout over the ranks."""

from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.optim import AdamW

from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.errors import WorkerError
from skyrl_nat.workers import process_group, zero3
from skyrl_nat.workers.base import ModelWorker
from skyrl_nat.workers.model import PackedCausalLM, read_weights, trained_parameters
from skyrl_nat.workers.optimizer import adamw, init_state
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

    def close(self) -> None:
        """Drop engine and model and leave the process group; safe to call twice."""
        if self._engine is not None:
            self._engine.destroy()
            self._engine = None
        super().close()

    def _lay_out(self, module: PackedCausalLM, path: Path) -> None:
        config = zero3.settings(self.model_config, self._max_grad_norm)
        drawn = zero3.cut(module, config, self.device)
        self._engine = zero3.build_engine(module, self._new_optimizer(module), config)
        # DeepSpeed makes master weights from the rounded ones: both are filled, after it.
        read_weights(module, path)
        for parameter, values in drawn.items():
            for part in zero3.own_parts(parameter):
                part.copy_(values.flatten()[zero3.own_run(parameter)])

    @property
    def _max_grad_norm(self) -> float:
        """What gradients are clipped to; 0 for never."""
        return 0.0

    def _new_optimizer(self, module: PackedCausalLM) -> AdamW | None:
        """Return an optimizer without state, which DeepSpeed takes over; None for a model that is not trained."""
        return None

    def _give_back(self) -> None:
        self.engine.empty_partition_cache()

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

    @property
    def _max_grad_norm(self) -> float:
        return self.optimizer_config.max_grad_norm

    def _new_optimizer(self, module: PackedCausalLM) -> AdamW:
        return adamw(trained_parameters(module), self.optimizer_config)

    def _build_optimizer(self) -> AdamW:
        optimizer = self.engine.optimizer.optimizer
        init_state(optimizer, self.engine.optimizer.fp32_partitioned_groups_flat)
        return optimizer

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

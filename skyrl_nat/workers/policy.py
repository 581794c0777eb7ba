"""One rank of the model in training: log-probs, optimizer steps, weights out, checkpoints."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.batching.trained import TrainedTokens
from skyrl_nat.checkpoint.pretrained import resolve_model, stream_hf_folder
from skyrl_nat.checkpoint.sharded import state_tensors
from skyrl_nat.config.algorithm import AlgorithmConfig
from skyrl_nat.config.model import ModelConfig, Offload, OptimizerConfig
from skyrl_nat.errors import StoppedError, WeightSyncError, WorkerError
from skyrl_nat.monitoring.usage import Activity
from skyrl_nat.weight_sync.adapters import adapter_shapes
from skyrl_nat.weight_sync.base import TensorSpec, tensor_digest
from skyrl_nat.workers.base import noted
from skyrl_nat.workers.checkpointed import CheckpointedWorker
from skyrl_nat.workers.lora import adapter_matrices, adapters_off, write_adapter
from skyrl_nat.workers.model import PREFIX, checkpoint_parameters, frozen_weights, full_weights, trained_parameters
from skyrl_nat.workers.objective import PEAKS, SUMS, StepConstants, micro_batch_loss, named_metrics
from skyrl_nat.workers.offload import HostMemory
from skyrl_nat.workers.optimizer import build_optimizer, lr_at, optimizer_tensors, set_lr
from skyrl_nat.workers.process_group import full_shape, full_tensor


class PolicyWorker(CheckpointedWorker):
    """One rank of the policy. Every method but `ping` is called on all ranks together."""

    def __init__(  # noqa: PLR0913 - one keyword per config section beats a bag of settings
        self,
        *,
        model_path: str,
        model: ModelConfig,
        optimizer: OptimizerConfig,
        algorithm: AlgorithmConfig,
        device: str,
        temperature: float,
        total_steps: int,
        num_threads: int,
        seed: int,
        pushes_adapters: bool = False,
        num_replicas: int = 1,
    ) -> None:
        """Remember the settings; nothing is loaded yet.

        Args:
            model_path: Folder, hub id or built-in name; replaces `model.path`.
            model: Section `model`.
            optimizer: Section `optimizer`.
            algorithm: Section `algorithm`.
            device: `cpu` or `cuda`.
            temperature: Sampling temperature in training, > 0.
            total_steps: Optimizer steps of the whole run, for the schedule.
            num_threads: CPU threads of this process; 0 leaves torch's own number.
            seed: Seed of this process.
            pushes_adapters: Whether adapters alone go to the engines, not their sum with the frozen weights.
            num_replicas: Copies of the model among the ranks.
        """
        super().__init__(
            model_path=model_path,
            model=model,
            device=device,
            temperature=temperature,
            num_threads=num_threads,
            seed=seed,
            num_replicas=num_replicas,
        )
        self.optimizer_config = optimizer
        self.algorithm = algorithm
        self.total_steps = total_steps
        self.pushes_adapters = pushes_adapters
        self._optimizer: torch.optim.AdamW | None = None
        self._host = {Offload.optimizer: HostMemory(lambda: optimizer_tensors(self.optimizer)), **self._host}
        self._sender: Any = None
        self._trained: list[TrainedTokens] = []
        """Of the last `train`, on this rank's device."""
        self._transfer_dtype = str(model.dtype)

    @property
    def optimizer(self) -> torch.optim.AdamW:
        """The optimizer over this rank's shards.

        Raises:
            WorkerError: `build` was not called.
        """
        if self._optimizer is None:
            raise WorkerError("PolicyWorker must be built before use, got no optimizer. Call build first.")
        return self._optimizer

    def build(self) -> dict[str, float]:
        """Load and shard the model and make its optimizer.

        Returns:
            `num_parameters` of the whole model.
        """
        info = super().build()
        self._optimizer = self._build_optimizer()
        return info

    @noted(Activity.TRAIN)
    def train(self, micro_batches: Sequence[MicroBatch], constants: StepConstants) -> dict[str, float]:
        """Do one optimizer step.

        A step without loss tokens, or with a NaN or infinite gradient, leaves weights, optimizer state
        and schedule as they are.

        Args:
            micro_batches: This rank's row of the grid, the same on ranks that share it; every rank has the same number.
            constants: Of this step, the same on every rank.

        Returns:
            Metrics over all ranks, the same on each. `loss/total` is the scalar whose gradient was taken.

        Raises:
            StoppedError: The last `optimizer.max_skipped_steps` steps in a row were skipped.
            WorkerError: Weights or optimizer state are in host memory.
        """
        if any(memory.is_away for memory in self._host.values()):
            raise WorkerError(
                "weights and optimizer state must be on their device in train, got some in host memory. Call onload."
            )
        sums = torch.zeros(len(SUMS), dtype=torch.float64, device=self.device)
        peaks = torch.zeros(len(PEAKS), dtype=torch.float64, device=self.device)
        denominator = constants.denominator
        grad_norm = 0.0
        is_applied = False
        lr = lr_at(self.num_steps, self.optimizer_config, self.total_steps)
        self._trained = []
        if denominator > 0:
            for micro_batch in micro_batches:
                self._accumulate(micro_batch, constants, sums, peaks)
            set_lr(self.optimizer, lr)
            grad_norm = self._apply_gradients()
            is_applied = math.isfinite(grad_norm)
            self.num_steps += is_applied
        dist.all_reduce(sums)
        # Ranks that share a row have each counted all of it.
        sums /= self.module.ranks.size
        dist.all_reduce(peaks, op=dist.ReduceOp.MAX)
        metrics = named_metrics(sums, peaks, denominator)
        metrics |= {
            "loss/grad_norm": grad_norm,
            "loss/lr": lr,
            "loss/skipped": float(denominator > 0 and not is_applied),
            "loss/empty": float(denominator <= 0),
        }
        if denominator > 0:
            self._count_skipped(is_applied, grad_norm)
        return metrics | {"loss/num_skipped": float(self.num_skipped)}

    def trained_tokens(self) -> list[TrainedTokens]:
        """Return in host memory what the last `train` found of every token, one pair per micro-batch, and drop it.

        Empty where nothing was trained.
        """
        found = [(logprobs.float().cpu(), is_clipped.cpu()) for logprobs, is_clipped in self._trained]
        self._trained = []
        return found

    def compute_base_logprobs(self, micro_batches: Sequence[MicroBatch]) -> list[Tensor]:
        """Return the log-probs of the frozen weights alone, the reference of LoRA; see `compute_logprobs`."""
        with adapters_off(self.module):
            return self.compute_logprobs(micro_batches)

    def weight_manifest(self, dtype: str | None = None) -> list[TensorSpec]:
        """Return names, shapes and format of what is pushed, in the order in which it is sent.

        Args:
            dtype: torch dtype name on the wire; None means the one of `connect_weights`, or the model's.
        """
        shapes = {name: full_shape(p) for name, p in checkpoint_parameters(self.module)}
        if self.pushes_adapters:
            shapes = adapter_shapes(shapes, self.model_config.lora)
        return [TensorSpec(name=n, shape=s, dtype=dtype or self._transfer_dtype) for n, s in shapes.items()]

    def named_full_tensors(self, dtype: str | None = None) -> Iterator[tuple[str, Tensor]]:
        """Yield every parameter in full, one at a time; all ranks must read to the end.

        Args:
            dtype: As in `weight_manifest`.

        Yields:
            Checkpoint name, and a tensor on this rank's device that shares no memory with the model.
        """
        return self._converted(full_weights(self.module), dtype)

    def pushed_tensors(self, dtype: str | None = None) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors of `weight_manifest`; all ranks must read to the end.

        Args:
            dtype: As in `weight_manifest`.
        """
        if self.pushes_adapters:
            return self._converted(adapter_matrices(self.module, PREFIX), dtype)
        return self.named_full_tensors(dtype)

    @noted(Activity.PUSH)
    def export_weights(self, dtype: str | None = None) -> dict[str, Tensor]:
        """Return the tensors of `weight_manifest` in host memory, on rank 0; other ranks return {}.

        Args:
            dtype: As in `weight_manifest`.
        """
        return self._gathered(self.pushed_tensors(dtype))

    def listen_for_engines(self, info: dict[str, Any]) -> tuple[str, int]:
        """Open this rank's end of a weight channel, if engines take weights from it.

        Args:
            info: From the transport; its `dtype` becomes the format on the wire.

        Returns:
            Address and port at which engines meet it; port 0 where there is no channel.
        """
        from skyrl_nat.weight_sync.channel import WeightSender

        self._transfer_dtype = info["dtype"]
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        address = "127.0.0.1" if info["backend"] == "ipc" else self.group_address
        if info["world_size"] == 1:
            return address, 0
        self._sender = WeightSender({**info, "address": address})
        return address, self._sender.port

    def connect_weights(self) -> None:
        """Meet the engines of the channel; blocks until all are there."""
        if self._sender is not None:
            self._sender.join()

    @noted(Activity.PUSH)
    def send_weights(self) -> None:
        """Send the tensors of `weight_manifest` through the channel of `connect_weights`.

        Raises:
            WeightSyncError: No channel is open, or the transfer failed.
        """
        if self._sender is not None:
            self._sender.send(self.pushed_tensors())
            return
        for _ in self.pushed_tensors():
            pass
        if self.rank == 0:
            raise WeightSyncError(
                "a weight channel must be open before weights are sent, got none. Call connect_weights first."
            )

    def export_hf(self, folder: str | Path, dtype: str | None = None) -> None:
        """Write a Hugging Face folder with weights, config and tokenizer, and adapters beside them (rank 0 writes).

        Weights are gathered and written tensor by tensor: no rank ever holds all of them.

        Args:
            folder: Created if missing.
            dtype: torch dtype name of the weights; None means the master weights'.
        """
        chosen = dtype or str(self.model_config.dtype)
        tensors = self.named_full_tensors(chosen)
        if self.rank == 0:
            shapes = {name: full_shape(p) for name, p in checkpoint_parameters(self.module)}
            stream_hf_folder(Path(folder), resolve_model(self.model_path), tensors, shapes=shapes, dtype=chosen)
        else:
            for _ in tensors:
                pass
        if self.model_config.lora.rank:
            self.export_adapter(Path(folder) / "adapter")
        dist.barrier()

    def export_adapter(self, folder: str | Path) -> None:
        """Write the adapters alone as a folder that PEFT and vLLM load (rank 0 writes).

        Args:
            folder: Created if missing.
        """
        target = Path(folder) if self.rank == 0 else Path()
        with self._host[Offload.all].resident():
            write_adapter(target, self.module, self.model_config.lora, PREFIX, self.model_config.path)

    def checksums(self, dtype: str | None = None) -> dict[str, str]:
        """Return a digest of every tensor that an engine must compute with, by name; equal on all ranks.

        Args:
            dtype: As in `weight_manifest`.
        """
        digests = {name: tensor_digest(tensor) for name, tensor in self.pushed_tensors(dtype)}
        if self.pushes_adapters:
            frozen = self._converted(frozen_weights(self.module), dtype)
            digests |= {name: tensor_digest(tensor) for name, tensor in frozen}
        return digests

    def parameter_digest(self) -> str:
        """Return a SHA-256 (hex) over all parameters in master format; equal on all ranks."""
        digest = hashlib.sha256()
        for name, tensor in self.named_full_tensors(str(self.model_config.dtype)):
            digest.update(name.encode())
            raw = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            digest.update(raw.tobytes())
        return digest.hexdigest()

    def close(self) -> None:
        """Close the weight channel, drop the model, leave the process group; safe to call twice."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        self._optimizer = None
        super().close()

    def _converted(self, tensors: Iterator[tuple[str, Tensor]], dtype: str | None) -> Iterator[tuple[str, Tensor]]:
        """Yield copies in the format on the wire."""
        target = getattr(torch, dtype or self._transfer_dtype)
        with self._host[Offload.all].resident():
            for name, tensor in tensors:
                # One rank's shard is the whole tensor: what leaves must not change with the next step.
                yield name, tensor.to(target, copy=True)

    def _gathered(self, tensors: Iterator[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """Read to the end on all ranks and keep copies in host memory on rank 0."""
        kept: dict[str, Tensor] = {}
        for name, tensor in tensors:
            if self.rank == 0:
                kept[name] = tensor.cpu()
        return kept

    def _accumulate(self, micro_batch: MicroBatch, constants: StepConstants, sums: Tensor, peaks: Tensor) -> None:
        """Add one micro-batch's gradient, and its statistics in place."""
        on_device = micro_batch.to(self.device)
        logprobs, entropies = self._score(on_device)
        loss = micro_batch_loss(logprobs, entropies, on_device, self.algorithm, constants)
        self._backward(loss.numerator / constants.denominator)
        sums += loss.sums
        torch.maximum(peaks, loss.peaks, out=peaks)
        self._trained.append((logprobs.detach(), loss.is_clipped))
        self.num_micro_batches += 1

    def _build_optimizer(self) -> torch.optim.AdamW:
        return build_optimizer(trained_parameters(self.module), self.optimizer_config)

    def _backward(self, loss: Tensor) -> None:
        """Add the gradient of this rank's part of the loss; over the ranks, gradients are summed."""
        loss.backward()

    def _apply_gradients(self) -> float:
        """Clip to the global norm, step if it is finite, drop the gradients.

        Returns:
            The norm before clipping, the same number on all ranks.
        """
        limit = self.optimizer_config.max_grad_norm or math.inf
        grad_norm = float(full_tensor(torch.nn.utils.clip_grad_norm_(self.module.parameters(), limit)))
        if math.isfinite(grad_norm):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return grad_norm

    def _state_tensors(self) -> dict[str, Tensor]:
        return state_tensors(trained_parameters(self.module), self.optimizer)

    def _count_skipped(self, is_applied: bool, grad_norm: float) -> None:
        """Keep the counters; stop the run after too many skips in a row."""
        if is_applied:
            self.num_skipped_in_a_row = 0
            return
        self.num_skipped += 1
        self.num_skipped_in_a_row += 1
        if self.num_skipped_in_a_row >= self.optimizer_config.max_skipped_steps:
            raise StoppedError(
                f"gradients must be finite, got a norm of {grad_norm} in {self.num_skipped_in_a_row} "
                "steps in a row, all skipped. Lower optimizer.lr or look at the last batches; the last "
                "checkpoint is good."
            )

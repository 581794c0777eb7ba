"""What runs inside vLLM's workers: loading new weights, and reading back the ones in use.

vLLM imports this module in every worker through `worker_extension_cls`; nothing else may import it.
Written for vLLM 0.25 to 0.32.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load
from torch import Tensor, nn
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)
from vllm.platforms import current_platform

from skyrl_nat.errors import WeightSyncError
from skyrl_nat.weight_sync.base import tensor_digest
from skyrl_nat.weight_sync.channel import WeightReceiver
from skyrl_nat.weight_sync.direct import manifest_from_wire
from skyrl_nat.weight_sync.manifest import TIED_HEAD
from skyrl_nat.weight_sync.vllm_adapters import digests_of_files, read_live_adapter, replace_adapter, start_adapter

BACKEND = "skyrl_nat"
"""Name of our channel among vLLM's weight-transfer engines."""


class ModelReload:
    """One reload of all weights of a vLLM model.

    Args:
        model: The model as vLLM's worker holds it.
        vllm_config: Its configuration.
    """

    def __init__(self, model: nn.Module, vllm_config: VllmConfig) -> None:
        self.model: Any = model
        self.vllm_config = vllm_config
        self._is_tied = bool(getattr(vllm_config.model_config.hf_text_config, "tie_word_embeddings", False))
        self._keeps_digests = vllm_config.parallel_config.world_size > 1
        self.digests: dict[str, str] = {}

    @contextlib.contextmanager
    def run(self) -> Iterator[Callable[[str, Tensor], None]]:
        """Give a function that takes one tensor at a time; the model is whole again on exit."""
        with set_current_vllm_config(self.vllm_config), torch.no_grad():
            initialize_layerwise_reload(self.model)
            try:
                yield self._take
            except BaseException:
                # Half-loaded layers would count their old parts in the next reload, so close this one.
                with contextlib.suppress(Exception):
                    finalize_layerwise_reload(self.model, self.vllm_config.model_config)
                raise
            finalize_layerwise_reload(self.model, self.vllm_config.model_config)
            self._repack_tied_head()

    def _take(self, name: str, tensor: Tensor) -> None:
        if self._keeps_digests:
            self.digests[name] = tensor_digest(tensor)
        if not (self._is_tied and name == TIED_HEAD):
            self.model.load_weights([(name, tensor)])

    def _repack_tied_head(self) -> None:
        """Pack the head again on CPUs, where it is a copy of the embedding that a reload leaves old."""
        head = getattr(self.model, "lm_head", None)
        if current_platform.is_cpu() and head is not None and hasattr(head, "cpu_linear"):
            head.quant_method.process_weights_after_loading(head)


@dataclass
class ChannelInitInfo(WeightTransferInitInfo):
    """What `DirectTransport.connect` sends to an engine."""

    info: dict[str, Any] = field(default_factory=dict)


@dataclass
class ChannelUpdateInfo(WeightTransferUpdateInfo):
    """What one push announces."""

    manifest: list[dict[str, Any]] = field(default_factory=list)
    refusal: str = ""


class ChannelWeightTransferEngine(WeightTransferEngine):
    """vLLM's weight-transfer life cycle over `WeightReceiver`.

    The whole reload happens in `receive_weights`, in one call, so that a refused manifest leaves the
    model untouched and no forward pass can meet a half-loaded one.
    """

    init_info_cls = ChannelInitInfo
    update_info_cls = ChannelUpdateInfo
    receiver: WeightReceiver | None = None
    digests: dict[str, str] | None = None
    """Of what the last push brought, with tensor parallelism."""

    def init_transfer_engine(self, init_info: ChannelInitInfo) -> None:
        """Join the group; blocks until all ends are there."""
        self.shutdown()
        self.receiver = WeightReceiver(init_info.info["workers"][self.parallel_config.rank])

    def start_weight_update(self) -> None:
        """Do nothing: see the class."""

    def receive_weights(self, update_info: ChannelUpdateInfo) -> None:
        """Receive and load all tensors of the manifest."""
        receiver = self.require_receiver()
        manifest = manifest_from_wire(update_info.manifest)
        if update_info.refusal:
            receiver.receive(manifest, _drop, refusal=update_info.refusal)
        reload = ModelReload(self.model, self.vllm_config)
        with reload.run() as take:
            receiver.receive(manifest, take)
        self.digests = reload.digests

    def require_receiver(self) -> WeightReceiver:
        """Return this worker's end of the channel."""
        if self.receiver is None:
            raise WeightSyncError("A weight channel must be joined before a push, found none. Connect first.")
        return self.receiver

    def finish_weight_update(self) -> None:
        """Do nothing: see the class."""

    def shutdown(self) -> None:
        """Leave the group."""
        if self.receiver is not None:
            self.receiver.close()
        self.receiver = None

    @staticmethod
    def trainer_send_weights(iterator: Any, trainer_args: Any) -> None:
        """Refuse: the policy sends through `WeightSender` (abstract in vLLM up to 0.26)."""
        raise NotImplementedError


class WorkerExtension:
    """Methods that vLLM mixes into its worker class, called by `collective_rpc`."""

    model_runner: Any
    vllm_config: VllmConfig
    weight_transfer_engine: Any

    def load_weights_from_file(self, path: str) -> None:
        """Load every tensor of a safetensors file."""
        reload = ModelReload(self.model_runner.model, self.vllm_config)
        with safe_open(path, framework="pt") as tensors, reload.run() as take:
            for name in tensors.keys():  # noqa: SIM118  (not a dict: cannot be iterated itself)
                take(name, tensors.get_tensor(name))
        self.weight_transfer_engine.digests = reload.digests

    def start_adapter(self, shapes: dict[str, list[int]]) -> None:
        """Get ready for adapters of these shapes; they are 0 until the first push."""
        start_adapter(self._adapter_manager(), shapes)

    def load_adapter(self, tensors: bytes) -> None:
        """Take all matrices of the adapter from the bytes of a safetensors file."""
        self._replace_adapter(load(tensors))

    def receive_adapter(self, manifest: list[dict[str, Any]], refusal: str) -> None:
        """Receive all matrices of the adapter through the channel; the old ones stay until all are there."""
        tensors: dict[str, Tensor] = {}
        receiver = self.weight_transfer_engine.require_receiver()
        receiver.receive(manifest_from_wire(manifest), tensors.__setitem__, refusal=refusal)
        self._replace_adapter(tensors)

    def read_adapter_digests(self, shapes: dict[str, list[int]], adapter: dict[str, list[int]]) -> dict[str, str]:
        """Return digests of the frozen weights and of the adapter that this worker computes with.

        With tensor parallelism they are those of the model's files and of the last push.

        Args:
            shapes: Checkpoint shapes by name.
            adapter: Of the adapter's matrices.
        """
        if self.vllm_config.parallel_config.world_size == 1:
            live = read_live_adapter(self._adapter_manager(), adapter)
            return self.read_weight_digests(shapes) | {name: tensor_digest(tensor) for name, tensor in live}
        model_config = self.vllm_config.model_config
        return digests_of_files(Path(model_config.model), shapes, model_config.dtype) | self.read_weight_digests({})

    def read_weight_digests(self, shapes: dict[str, list[int]]) -> dict[str, str]:
        """Return a digest of every tensor that this worker computes with.

        With one worker the live weights are read, fused ones taken apart, packed ones by multiplying
        with the identity. With tensor parallelism no worker has whole tensors; the digests are then
        those of what was handed to the loader.

        Args:
            shapes: Checkpoint shapes by name.
        """
        if self.vllm_config.parallel_config.world_size == 1:
            return {n: tensor_digest(t) for n, t in read_live_weights(self._model(), shapes)}
        digests = self.weight_transfer_engine.digests
        if not digests:
            raise WeightSyncError(
                "With tensor parallelism digests exist after the first push only, found none. Push first."
            )
        return digests

    def _replace_adapter(self, tensors: dict[str, Tensor]) -> None:
        replace_adapter(self._adapter_manager(), tensors)
        if self.vllm_config.parallel_config.world_size > 1:
            self.weight_transfer_engine.digests = {name: tensor_digest(tensor) for name, tensor in tensors.items()}

    def _adapter_manager(self) -> Any:
        return self.model_runner.lora_manager._adapter_manager

    def _model(self) -> nn.Module:
        return self.model_runner.model


def read_live_weights(model: nn.Module, shapes: dict[str, list[int]]) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights a model computes with under their checkpoint names.

    A tied head that differs from its embedding is an error: the model would answer with old weights.

    Args:
        model: A vLLM model on one worker.
        shapes: Checkpoint shapes by name; decides where fused rows are cut and padding ends.
    """
    fused_of = {
        part: (fused, parts) for fused, parts in getattr(model, "packed_modules_mapping", {}).items() for part in parts
    }
    for name, shape in shapes.items():
        path, leaf = name.rsplit(".", 1)
        parent, _, last = path.rpartition(".")
        start = 0
        if last in fused_of and not _has_module(model, path):
            fused, parts = fused_of[last]
            before = parts[: parts.index(last)]
            start = sum(shapes[f"{parent}.{part}.{leaf}"][0] for part in before)
            path = f"{parent}.{fused}"
        module = model.get_submodule(path)
        whole = _read_parameter(getattr(module, "base_layer", module), leaf, shape)
        tensor = whole[start : start + shape[0]]
        yield name, tensor
        if name.endswith("embed_tokens.weight") and TIED_HEAD not in shapes:
            _require_same_head(model, tensor, shape)


def _require_same_head(model: nn.Module, embedding: Tensor, shape: list[int]) -> None:
    head = getattr(model, "lm_head", None)
    if head is None:
        return
    if not torch.equal(_read_parameter(head, "weight", shape)[: shape[0]], embedding):
        raise WeightSyncError(
            "A tied output head must hold the embedding's values, found others. Push the weights again."
        )


def _read_parameter(module: Any, leaf: str, shape: list[int]) -> Tensor:
    parameter = getattr(module, leaf)
    if leaf != "weight" or not hasattr(module, "cpu_linear"):
        return parameter.data
    # Each row of the identity selects one column: products with 1 and sums with 0 are exact.
    dtype = parameter.dtype
    columns = module.cpu_linear(torch.eye(shape[1], dtype=dtype), parameter, None)
    return columns.t().contiguous()


def _has_module(model: nn.Module, path: str) -> bool:
    try:
        model.get_submodule(path)
    except AttributeError:
        return False
    return True


def _drop(name: str, tensor: Tensor) -> None:
    """Take nothing; used where a push is refused."""


def _register() -> None:
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, ChannelWeightTransferEngine)


_register()

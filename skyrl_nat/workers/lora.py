"""Low-rank adapters: little is trained beside frozen weights, and the sum of both is what leaves.

LoRA (arXiv:2106.09685): W' = W + alpha / rank * B A, with B = 0 at the start. The adapters are PEFT's, without dropout,
which would make the policy another one in each pass.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from skyrl_nat.config.model import LoraConfig
from skyrl_nat.errors import ConfigError
from skyrl_nat.weight_sync.adapters import DOWN, UP
from skyrl_nat.workers.process_group import full_tensor

ADAPTER = "default"
_INNER = ".base_layer"
"""What PEFT puts into the name of a frozen weight."""
_OWN = (".lora_A.", ".lora_B.")


def add_adapters(model: PreTrainedModel, config: LoraConfig) -> None:
    """Freeze a model in place and add adapters, in host memory, to the layers named in the config.

    Raises:
        ConfigError: PEFT is not installed, or the model has no such layers.
    """
    peft = _peft()
    model.requires_grad_(False)
    try:
        peft.inject_adapter_in_model(_peft_config(config), model, adapter_name=ADAPTER, low_cpu_mem_usage=True)
    except ValueError as error:
        raise ConfigError(
            f"model.lora.targets must name linear layers of {type(model).__name__}, got {', '.join(config.targets)}: "
            f"{str(error).splitlines()[0]}. Take names such as q_proj"
        ) from error
    for _, layer in adapted_layers(model):
        parts = (layer.lora_A[ADAPTER], layer.lora_B[ADAPTER])
        for part in parts:
            # The frozen weights have no memory yet; adapters are small, and drawn as PEFT draws them.
            part.to_empty(device="cpu").reset_parameters()
        layer.reset_lora_parameters(ADAPTER, True)
        for part in parts:
            part.to(layer.weight.dtype)


@contextmanager
def adapters_off(module: nn.Module) -> Iterator[None]:
    """Compute with the frozen weights alone."""
    layers = [layer for _, layer in adapted_layers(module)]
    for layer in layers:
        # `enable_adapters` would freeze adapters as well, and FSDP settles with the first pass how it reduces what.
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def is_adapter(name: str) -> bool:
    """Return whether a parameter belongs to an adapter."""
    return any(part in name for part in _OWN)


def name_of_frozen(name: str) -> str:
    """Return a parameter's name without what PEFT put into it."""
    return name.replace(_INNER, "")


def adapted_layers(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the layers with adapters, PEFT's own, by name."""
    for name, part in module.named_modules():
        if hasattr(part, "lora_A") and hasattr(part, "base_layer"):
            yield name, part


def delta_of(layer: Any) -> Tensor:
    """Return alpha / rank * B A of a layer in full, in the adapter's format; all ranks must call this together."""
    down, up = layer.lora_A[ADAPTER].weight, layer.lora_B[ADAPTER].weight
    return (full_tensor(up) @ full_tensor(down)).mul_(layer.scaling[ADAPTER])


def adapter_matrices(module: nn.Module, prefix: str) -> Iterator[tuple[str, Tensor]]:
    """Yield A and alpha / rank * B of every layer in full, as they travel; all ranks must read to the end.

    Args:
        module: The model.
        prefix: Of its names, left out.
    """
    for name, layer in adapted_layers(module):
        path = name.removeprefix(prefix)
        yield path + DOWN, full_tensor(layer.lora_A[ADAPTER].weight)
        yield path + UP, full_tensor(layer.lora_B[ADAPTER].weight) * layer.scaling[ADAPTER]


def write_adapter(folder: Path, module: nn.Module, config: LoraConfig, prefix: str, base: str) -> None:
    """Write the adapters as a folder that PEFT and vLLM load; all ranks must call this together, one may write.

    Args:
        folder: Made; empty names no folder, for ranks that only take part.
        module: The model.
        config: Section `model.lora`.
        prefix: Of the names of `module`, left out.
        base: Name of the model that the adapters belong to.
    """
    tensors: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        if is_adapter(name):
            key = name.removeprefix(prefix).replace(f".{ADAPTER}.", ".")
            tensors[f"base_model.model.{key}"] = full_tensor(parameter).cpu().contiguous()
    if not folder.name:
        return
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    peft_config = _peft_config(config)
    peft_config.base_model_name_or_path = base
    peft_config.save_pretrained(str(folder))


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise ConfigError("model.lora needs the library peft, which is not installed. pip install peft") from error
    return peft


def _peft_config(config: LoraConfig) -> Any:
    return _peft().LoraConfig(
        r=config.rank, lora_alpha=config.alpha, target_modules=list(config.targets), lora_dropout=0.0, bias="none"
    )

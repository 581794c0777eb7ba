"""The model in training: built without memory, then adapters, activation checkpointing, FSDP2, weights, in that order.

Legend: N packed tokens, U computed ones, B sequences, S ranks that share them (`sequence_parallel`).
"""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.config.model import ModelConfig
from skyrl_nat.errors import ConfigError
from skyrl_nat.workers import attention, lora
from skyrl_nat.workers.logprobs import HeadOptions, likeliest_tokens, token_logprobs
from skyrl_nat.workers.process_group import full_tensor
from skyrl_nat.workers.residual import keep_residual_in_fp32
from skyrl_nat.workers.sequence_parallel import ALONE, check_heads
from skyrl_nat.workers.weight_files import fill

PREFIX = "causal_lm."
"""What `PackedCausalLM` puts before the names of a Hugging Face checkpoint."""
_LOGIT_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling")
_DROPOUT_NAMES = ("dropout", "pdrop", "dropout_prob", "dropout_rate")
"""How the names of dropout shares end in model configs."""


class PackedCausalLM(nn.Module):
    """A causal LM whose forward pass goes from packed tokens to log-probs, so that FSDP2 wraps all of it."""

    def __init__(self, causal_lm: PreTrainedModel, head: HeadOptions, *, offloads_activations: bool = False) -> None:
        """Wrap a model.

        Args:
            causal_lm: With `.model` (the decoder) and `.lm_head`.
            head: How the LM head is computed.
            offloads_activations: Keep what the decoder saves for the backward pass in host memory.
        """
        super().__init__()
        self.causal_lm = causal_lm
        self.head = head
        self.offloads_activations = offloads_activations
        self.ranks = ALONE
        """Who shares the tokens of each micro-batch with this rank."""
        self.num_likeliest = 0
        """K > 0 makes `forward` return the likeliest tokens in the place of log-probs and entropies."""

    def forward(
        self,
        token_ids: Tensor,
        position_ids: Tensor,
        loss_mask: Tensor,
        computed: Tensor,
        source: Tensor,
        rows: attention.PackedRows,
    ) -> tuple[Tensor, Tensor]:
        """Return log-prob and entropy of every loss token.

        Args:
            token_ids: `[N]` int64.
            position_ids: `[N]` int64.
            loss_mask: `[N]` bool, False at the first token of every sequence.
            computed: `[U]` int64 places of the tokens that are computed.
            source: `[N]` int64: the computed token that stands for each.
            rows: Borders of the sequences.

        Returns:
            Two `[N]` fp32 tensors aligned with the tokens, 0 where masked. With `num_likeliest`: `[N, K]` ids and
            log-probs of the likeliest tokens in the place of each, without gradients.
        """
        decoder = self.causal_lm.model
        mine = self.ranks.slice_of(computed)
        # The head is left out: what it saves is mostly its weight.
        with save_on_cpu(pin_memory=token_ids.is_cuda) if self.offloads_activations else nullcontext():
            hidden = decoder(  # type: ignore[operator]
                input_ids=token_ids[mine][None],
                position_ids=position_ids[mine][None],
                attention_mask=None,
                use_cache=False,
                rows=rows,
            ).last_hidden_state[0]
        # Where the token before each lies in this rank's slice; the first of all is never in the loss.
        before = source.roll(1) - self.ranks.rank * mine.numel()
        places = (loss_mask & (before >= 0) & (before < mine.numel())).nonzero()[:, 0]
        weight, states = self.causal_lm.lm_head.weight, hidden[before[places]]  # type: ignore[union-attr]
        if self.num_likeliest:
            results = likeliest_tokens(states, weight, self.num_likeliest, self.head)  # type: ignore[arg-type]
        else:
            results = token_logprobs(states, weight, token_ids[places], self.head)  # type: ignore[arg-type]
        own = (
            values.new_zeros(token_ids.numel(), *values.shape[1:]).index_put((places,), values) for values in results
        )
        first, second = (self.ranks.whole(values) for values in own)
        return first, second

    def score(self, micro_batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Call the module on a micro-batch that lies on its device; see `forward`."""
        return self(**self.arguments(micro_batch))

    def arguments(self, micro_batch: MicroBatch) -> dict[str, Any]:
        """Return what `forward` takes of a micro-batch."""
        return {
            "token_ids": micro_batch.token_ids,
            "position_ids": micro_batch.position_ids,
            "loss_mask": micro_batch.loss_mask,
            "computed": micro_batch.computed,
            "source": micro_batch.source,
            "rows": attention.PackedRows.of(micro_batch, self.ranks),
        }


def empty_causal_lm(path: Path, config: ModelConfig) -> PreTrainedModel:
    """Return a model for training, whose parameters have no memory yet: packed attention, no dropout, real buffers.

    Args:
        path: Local folder.
        config: Section `model`.

    Raises:
        ConfigError: The architecture changes logits or attention in a way that is not reproduced here.
    """
    attention.register()
    hf_config = AutoConfig.from_pretrained(path, trust_remote_code=config.trust_remote_code)
    attention.check_supported(hf_config)
    check_heads(hf_config, config.sequence_parallel_size)
    _check_head(hf_config)
    for name, value in vars(hf_config).items():
        if name.endswith(_DROPOUT_NAMES) and value:
            setattr(hf_config, name, 0.0)
    with init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(
            hf_config,
            dtype=getattr(torch, str(config.dtype)),
            attn_implementation=attention.PACKED_ATTENTION,
            trust_remote_code=config.trust_remote_code,
        )
    model.tie_weights()
    head = getattr(model, "lm_head", None)
    if head is None or head.bias is not None or not hasattr(model, "model"):
        raise ConfigError(
            f"model.path must hold a causal LM with `model` and an `lm_head` without bias, got "
            f"{type(model).__name__}. Use a Llama- or Qwen-like model."
        )
    return model


def build_packed_model(path: Path, config: ModelConfig, *, temperature: float, is_trainable: bool) -> PackedCausalLM:
    """Return a model ready for sharding; its parameters get memory and values in `load_weights`.

    Args:
        path: Local folder.
        config: Section `model`.
        temperature: Logits are divided by it, > 0.
        is_trainable: False freezes all parameters.
    """
    model = empty_causal_lm(path, config)
    # Layers recompute only in train mode; without dropout that mode changes nothing else.
    model.train(is_trainable)
    model.requires_grad_(is_trainable)
    if config.fp32_residual:
        keep_residual_in_fp32(model, getattr(torch, str(config.compute_dtype)))
    if is_trainable and config.lora.rank:
        lora.add_adapters(model, config.lora)
    if is_trainable and config.activation_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if config.compile:
        for layer in model.model.layers:  # type: ignore[union-attr]
            layer.compile(dynamic=True)
    head = HeadOptions(
        temperature=temperature,
        chunk_tokens=config.logprob_chunk_tokens,
        fp32_head=config.fp32_head,
        is_compiled=config.compile,
    )
    return PackedCausalLM(model, head, offloads_activations=is_trainable and config.activation_offload)


def shard(module: PackedCausalLM, mesh: DeviceMesh, config: ModelConfig) -> None:
    """Apply FSDP2 in place: each decoder layer, then the rest (embedding, norm and head together).

    One rank whose compute format is the master format stays as it is.

    Gradients are summed over ranks, not averaged: the loss is already divided by the step's denominator.

    Args:
        module: The model, without memory.
        mesh: One dimension to shard over, or two: copies, and the ranks that each is sharded over.
        config: Section `model`.
    """
    policy = MixedPrecisionPolicy()
    if config.compute_dtype != config.dtype:
        policy = MixedPrecisionPolicy(
            param_dtype=getattr(torch, str(config.compute_dtype)),
            reduce_dtype=getattr(torch, str(config.dtype)),
            # What a layer takes from the one before is the residual stream.
            cast_forward_inputs=not config.fp32_residual,
        )
    is_distributed = mesh.size() > 1
    if not is_distributed and config.compute_dtype == config.dtype:
        return  # nothing to gather or cast: FSDP would hold a second copy of every parameter
    for layer in module.causal_lm.model.layers:  # type: ignore[union-attr]
        fully_shard(
            layer, mesh=mesh, mp_policy=policy, reshard_after_forward=is_distributed and config.reshard_after_forward
        )
    fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
            # The custom factor alone needs a reduction that only NCCL has.
            part.set_force_sum_reduction_for_comms(True)


def load_weights(module: PackedCausalLM, path: Path, device: torch.device) -> None:
    """Give the model memory on a device and this rank's part of the checkpoint's weights; adapters and buffers move.

    Args:
        module: Sharded or whole, from `build_packed_model`.
        path: Folder of the checkpoint.
        device: Of this rank.

    Raises:
        WorkerError: The checkpoint's files or names do not fit the model.
    """
    # As `to_empty` does it, but without losing what has values.
    module._apply(lambda tensor: torch.empty_like(tensor, device=device) if tensor.is_meta else tensor.to(device))
    module.causal_lm.tie_weights()
    read_weights(module, path)


def read_weights(module: PackedCausalLM, path: Path) -> None:
    """Fill this rank's part of the model, which has memory, from the checkpoint; adapters keep their values.

    Args:
        module: Laid out over the ranks.
        path: Folder of the checkpoint.

    Raises:
        WorkerError: The checkpoint's files or names do not fit the model.
    """
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if not lora.is_adapter(name):
            names.setdefault(parameter, []).append(lora.name_of_frozen(name.removeprefix(PREFIX)))
    fill(names, path, module.causal_lm._keys_to_ignore_on_load_unexpected or ())


def reshard(module: nn.Module) -> None:
    """Give gathered parameters back, so that parameters are the sharded ones again.

    A forward pass without a backward pass leaves them gathered.
    """
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def checkpoint_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield every weight under its name in a Hugging Face checkpoint; adapters and a tied head are left out."""
    for name, parameter in module.named_parameters():
        if not lora.is_adapter(name):
            yield lora.name_of_frozen(name.removeprefix(PREFIX)), parameter


def trained_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield what the optimizer moves: all weights, or the adapters alone."""
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            yield name.removeprefix(PREFIX), parameter


def frozen_weights(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight in full without its adapter; all ranks must read to the end."""
    for name, parameter in checkpoint_parameters(module):
        yield name, full_tensor(parameter)


def full_weights(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight in full as it is computed with, adapters added; all ranks must read to the end."""
    adapters = {f"{name.removeprefix(PREFIX)}.weight": layer for name, layer in lora.adapted_layers(module)}
    for name, full in frozen_weights(module):
        yield name, full + lora.delta_of(adapters[name]) if name in adapters else full


def _check_head(hf_config: PretrainedConfig) -> None:
    """Refuse models that change their logits after the head."""
    for name in _LOGIT_CHANGES:
        value = getattr(hf_config, name, None)
        if value not in (None, 1, 1.0):
            raise ConfigError(
                f"model.path must be a model whose logits are its head's output, got {name}={value} in "
                f"{hf_config.model_type}. Use a Llama- or Qwen-like model."
            )

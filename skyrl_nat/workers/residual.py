"""The residual stream in fp32: what the layers add up is not rounded on its way through the model.

In bf16 every sum is rounded, twice a layer, and two programs that round almost the same numbers soon round differently.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from skyrl_nat.errors import ConfigError
from skyrl_nat.workers.products import Fp32Linear

_ADDED = ("o_proj", "down_proj")
"""Layers whose outputs are added to the stream."""
_NORM = "RMSNorm"
"""How the classes of normalisations end whose formula vLLM's `RMSNorm` shares."""
_OTHER_NORMS = ("Gemma", "LayerNorm")


def keep_residual_in_fp32(model: PreTrainedModel, compute_dtype: torch.dtype) -> None:
    """Have a decoder add its layers' outputs in fp32, in place; all products are of matrices in `compute_dtype`.

    The embedding's output is fp32, so that sums with it are; what is added is not rounded before, and a norm computes
    in fp32 and rounds its result once.

    Args:
        model: A causal LM of Hugging Face with `.model`, without adapters and not compiled yet.
        compute_dtype: Of products.

    Raises:
        ConfigError: The model does not normalise as Llama and Qwen do.
    """
    decoder: nn.Module = model.model  # type: ignore[assignment]
    norms = [part for part in decoder.modules() if type(part).__name__.endswith("Norm")]
    strange = sorted({type(part).__name__ for part in norms if not _is_plain(part)})
    added = [part for name, part in decoder.named_modules() if name.endswith(_ADDED)]
    is_known = norms and added and hasattr(decoder, "embed_tokens") and hasattr(decoder, "rotary_emb")
    if strange or not is_known:
        raise ConfigError(
            "model.fp32_residual needs a decoder built like Llama's: plain RMSNorm layers, embed_tokens, rotary_emb, "
            f"o_proj and down_proj. Found {', '.join(strange) or type(decoder).__name__}. Leave it out for this model"
        )

    def round_result(_: nn.Module, __: object, result: Tensor) -> Tensor:
        return result.to(compute_dtype)

    def round_angles(_: nn.Module, __: object, result: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        # As engines keep them, whatever the format of the states that they are made for.
        return tuple(angles.to(compute_dtype) for angles in result)

    decoder.embed_tokens.register_forward_hook(lambda _, __, result: result.float())  # type: ignore[union-attr]
    decoder.rotary_emb.register_forward_hook(round_angles)  # type: ignore[union-attr]
    for linear in added:
        linear.__class__ = Fp32Linear
    for norm in norms:
        norm.register_forward_pre_hook(lambda _, states: (states[0].float(),))
        norm.register_forward_hook(round_result)


def _is_plain(norm: nn.Module) -> bool:
    name = type(norm).__name__
    return name.endswith(_NORM) and not name.startswith(_OTHER_NORMS) and hasattr(norm, "variance_epsilon")

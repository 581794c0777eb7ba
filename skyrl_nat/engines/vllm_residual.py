"""The residual stream of vLLM's models in fp32, as `model.fp32_residual` has it in training (`workers/residual.py`).

vLLM imports this module in every worker through `worker_extension_cls`, before it builds the model, and takes the class
below in the place of its own wherever a model asks for an `RMSNorm`; nothing else may import it.
Written for vLLM 0.26 to 0.32.
"""

from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import RowParallelLinear, UnquantizedLinearMethod

from skyrl_nat.errors import EngineError
from skyrl_nat.weight_sync.vllm_worker import WorkerExtension


@RMSNorm.register_oot(name="RMSNorm")
class Fp32ResidualNorm(RMSNorm):
    """`RMSNorm` that adds to the residual stream in fp32 and rounds its own result once."""

    def forward_native(self, x: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Return the normalised sum in the weight's format, and the sum in fp32 where a residual was given.

        Args:
            x: `[N, H]`, what the layer before put out.
            residual: `[N, H]`, the stream before it; fp32, or the embedding as it is.
        """
        total = x.float() if residual is None else residual.float() + x
        weight = self.weight.float() if self.has_weight else None
        normed = torch.nn.functional.rms_norm(total, total.shape[-1:], weight, self.variance_epsilon)
        normed = normed.to(self.weight.dtype)
        return normed if residual is None else (normed, total)

    def forward_cuda(self, x: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Do the same."""
        return self.forward_native(x, residual)


class Fp32ResidualExtension(WorkerExtension):
    """What runs in the workers of an engine with `engine.fp32_residual`."""

    model_runner: Any

    def require_fp32_residual(self) -> None:
        """Raise unless the model normalises with the class above, its whole width."""
        norms = [part for part in self.model_runner.model.modules() if isinstance(part, Fp32ResidualNorm)]
        if not norms or any(norm.variance_size_override is not None for norm in norms):
            raise EngineError(
                f"engine.fp32_residual needs a model with plain RMSNorm layers, found "
                f"{type(self.model_runner.model).__name__}. Use a Llama- or Qwen-like model, or leave it out"
            )


_product = UnquantizedLinearMethod.apply


def _unrounded_product(
    self: UnquantizedLinearMethod, layer: torch.nn.Module, x: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Put out fp32 where the result is added to the residual stream, which GPUs do at no cost; CPUs round it."""
    if not (isinstance(layer, RowParallelLinear) and x.is_cuda and x.dtype is torch.bfloat16):
        return _product(self, layer, x, bias)
    weight: Any = layer.weight
    result = torch.mm(x.reshape(-1, x.shape[-1]), weight.t(), out_dtype=torch.float32)
    result = result.view(*x.shape[:-1], -1)
    return result if bias is None else result + bias


UnquantizedLinearMethod.apply = _unrounded_product

"""Matrix products of bf16 matrices whose results stay in fp32, where a plain product would round them to bf16."""

from typing import Any

import torch
from torch import Tensor, nn


def fp32_product(states: Tensor, weight: Tensor) -> Tensor:
    """Return `states @ weight.T` in fp32.

    Args:
        states: `[M, H]`.
        weight: `[O, H]` in the same format.
    """
    if states.is_cuda and states.dtype is not torch.float32:
        return torch.mm(states, weight.T, out_dtype=torch.float32)
    return states.float() @ weight.T.float()


class Fp32Linear(nn.Linear):
    """A linear layer that puts out fp32; another one may take its class and become one."""

    def forward(self, input: Tensor) -> Tensor:
        """Return `[..., O]` in fp32."""
        result = _linear(input, self.weight)
        return result if self.bias is None else result + self.bias


@torch.library.custom_op("skyrl_nat::fp32_linear", mutates_args=())
def _linear(states: Tensor, weight: Tensor) -> Tensor:
    """One op for the compiler, whose own products round."""
    return fp32_product(states.reshape(-1, states.shape[-1]), weight).view(*states.shape[:-1], -1)


@_linear.register_fake
def _(states: Tensor, weight: Tensor) -> Tensor:
    return states.new_empty((*states.shape[:-1], weight.shape[0]), dtype=torch.float32)


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    states, weight = ctx.saved_tensors
    grad = grad.to(weight.dtype)
    of_states = grad @ weight if ctx.needs_input_grad[0] else None
    flat = grad.reshape(-1, grad.shape[-1])
    of_weight = flat.T @ states.reshape(-1, states.shape[-1]) if ctx.needs_input_grad[1] else None
    return of_states, of_weight


_linear.register_autograd(_backward, setup_context=_save)

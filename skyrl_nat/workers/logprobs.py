"""Log-probs and entropies of chosen tokens without ever holding all logits.

Legend: M tokens in the loss, V vocabulary, H hidden size, C tokens of a chunk. Logits exist for C tokens
at a time, in the forward pass and again in the backward pass, which recomputes them.
"""

from typing import Any

import torch
from torch import Tensor


def token_logprobs(
    hidden: Tensor, weight: Tensor, targets: Tensor, *, temperature: float, chunk_tokens: int, fp32_head: bool = False
) -> tuple[Tensor, Tensor]:
    """Return log-probs of tokens and the entropies of the distributions they were drawn from.

    Args:
        hidden: `[M, H]` decoder outputs, each at the position before its target.
        weight: `[V, H]` of the LM head.
        targets: `[M]` int64 token ids.
        temperature: Logits are divided by it, > 0.
        chunk_tokens: C.
        fp32_head: Keep the head's products in fp32 instead of rounding logits to the format of `hidden` first.

    Returns:
        `[M]` fp32 log-probs and `[M]` fp32 entropies in nats; both carry gradients.
    """
    return _ChunkedLogprobs.apply(hidden, weight, targets, temperature, chunk_tokens, fp32_head)  # type: ignore[return-value]


def _scaled_logits(hidden: Tensor, weight: Tensor, temperature: float, fp32_head: bool) -> Tensor:
    """Return `[C, V]` fp32 logits in memory of their own, so that scaling in place harms nobody."""
    if not fp32_head or hidden.dtype is torch.float32:
        logits = (hidden @ weight.T).float()
    elif hidden.is_cuda:
        logits = torch.mm(hidden, weight.T, out_dtype=torch.float32)
    else:
        logits = hidden.float() @ weight.T.float()
    return logits.div_(temperature)


class _ChunkedLogprobs(torch.autograd.Function):
    """`token_logprobs` with a hand-written backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        temperature: float,
        chunk_tokens: int,
        fp32_head: bool,
    ) -> tuple[Tensor, Tensor]:
        size = targets.numel()
        logprobs = torch.empty(size, dtype=torch.float32, device=hidden.device)
        normalisers = torch.empty_like(logprobs)
        entropies = torch.empty_like(logprobs)
        for start in range(0, size, chunk_tokens):
            part = slice(start, start + chunk_tokens)
            logits = _scaled_logits(hidden[part], weight, temperature, fp32_head)
            norm = logits.logsumexp(dim=-1)
            logprobs[part] = logits.gather(1, targets[part, None])[:, 0] - norm
            normalisers[part] = norm
            probs = logits.sub(norm[:, None]).exp_()
            entropies[part] = norm - probs.mul_(logits).sum(dim=-1)
        ctx.save_for_backward(hidden, weight, targets, normalisers, entropies)
        ctx.temperature = temperature
        ctx.chunk_tokens = chunk_tokens
        ctx.fp32_head = fp32_head
        ctx.set_materialize_grads(False)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, Tensor | None, None, None, None, None]:
        grad_logprobs, grad_entropies = grads
        hidden, weight, targets, normalisers, entropies = ctx.saved_tensors
        grad_hidden = torch.zeros_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=torch.float32)
        for start in range(0, targets.numel(), ctx.chunk_tokens):
            part = slice(start, start + ctx.chunk_tokens)
            logs = _scaled_logits(hidden[part], weight, ctx.temperature, ctx.fp32_head)
            logs.sub_(normalisers[part, None])
            probs = logs.exp()
            # With z the scaled logits: d logprob / dz = onehot - p; dH / dz = -p (log p + H).
            factor = torch.zeros_like(normalisers[part, None])
            if grad_logprobs is not None:
                factor = factor - grad_logprobs[part, None]
            if grad_entropies is not None:
                logs.add_(entropies[part, None]).mul_(-grad_entropies[part, None])
                grad_logits = probs.mul_(logs.add_(factor))
            else:
                grad_logits = probs.mul_(factor)
            if grad_logprobs is not None:
                grad_logits.scatter_add_(1, targets[part, None], grad_logprobs[part, None])
            scaled = grad_logits.div_(ctx.temperature).to(weight.dtype)
            grad_hidden[part] = scaled @ weight
            if weight.dtype is torch.float32:
                grad_weight.addmm_(scaled.T, hidden[part])
            else:
                grad_weight += scaled.T @ hidden[part]
        return grad_hidden, grad_weight.to(weight.dtype), None, None, None, None

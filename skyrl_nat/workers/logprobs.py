"""Log-probs and entropies of chosen tokens without ever holding all logits.

Legend: M tokens in the loss, V vocabulary, H hidden size, C tokens of a chunk. Logits exist for C tokens
at a time, in the forward pass and again in the backward pass, which recomputes them.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from skyrl_nat.workers.products import fp32_product


class HeadOptions(NamedTuple):
    """How the LM head is computed."""

    temperature: float = 1.0
    """Logits are divided by it, > 0."""
    chunk_tokens: int = 1024
    """C."""
    fp32_head: bool = False
    """Keep the head's products in fp32 instead of rounding logits to the format of the hidden states first."""
    is_compiled: bool = False
    """Fuse what is done to each chunk's logits with torch.compile."""


def token_logprobs(hidden: Tensor, weight: Tensor, targets: Tensor, options: HeadOptions) -> tuple[Tensor, Tensor]:
    """Return log-probs of tokens and the entropies of the distributions they were drawn from.

    Args:
        hidden: `[M, H]` decoder outputs, each at the position before its target.
        weight: `[V, H]` of the LM head.
        targets: `[M]` int64 token ids.
        options: Of the head.

    Returns:
        `[M]` fp32 log-probs and `[M]` fp32 entropies in nats; both carry gradients.
    """
    return _ChunkedLogprobs.apply(hidden, weight, targets, options)  # type: ignore[return-value]


@torch.no_grad()
def likeliest_tokens(hidden: Tensor, weight: Tensor, count: int, options: HeadOptions) -> tuple[Tensor, Tensor]:
    """Return the likeliest next tokens after each position.

    Args:
        hidden: `[M, H]` decoder outputs.
        weight: `[V, H]` of the LM head.
        count: K, tokens wanted, 1 to V.
        options: Of the head.

    Returns:
        `[M, K]` token ids and their log-probs, likeliest first; both fp32, which holds ids below 2^24 exactly.
    """
    ids = torch.empty(hidden.shape[0], count, dtype=torch.float32, device=hidden.device)
    logprobs = torch.empty_like(ids)
    for start in range(0, hidden.shape[0], options.chunk_tokens):
        part = slice(start, start + options.chunk_tokens)
        scaled = _logits(hidden[part], weight, options.fp32_head).float().div_(options.temperature)
        logprobs[part], ids[part] = scaled.log_softmax(dim=-1).topk(count, dim=-1)
    return ids, logprobs


def _logits(hidden: Tensor, weight: Tensor, fp32_head: bool) -> Tensor:
    """Return `[C, V]` logits in memory of their own."""
    if not fp32_head or hidden.dtype is torch.float32:
        return hidden @ weight.T
    return fp32_product(hidden, weight)


def _statistics(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return `[C]` log-probs, normalisers and entropies; logits in fp32 are overwritten."""
    scaled = logits.float().div_(temperature)
    norm = scaled.logsumexp(dim=-1)
    logprobs = scaled.gather(1, targets[:, None])[:, 0] - norm
    probs = scaled.sub(norm[:, None]).exp_()
    return logprobs, norm, norm - probs.mul_(scaled).sum(dim=-1)


def _logit_gradients(
    logits: Tensor,
    targets: Tensor,
    normalisers: Tensor,
    entropies: Tensor,
    grads: tuple[Tensor | None, Tensor | None],
    temperature: float,
    dtype: torch.dtype,
) -> Tensor:
    """Return the `[C, V]` gradient by the logits in a format; logits in fp32 are overwritten.

    With z the scaled logits: d logprob / dz = onehot - p; dH / dz = -p (log p + H).
    """
    grad_logprobs, grad_entropies = grads
    logs = logits.float().div_(temperature).sub_(normalisers[:, None])
    probs = logs.exp()
    factor = torch.zeros_like(normalisers[:, None])
    if grad_logprobs is not None:
        factor = factor - grad_logprobs[:, None]
    if grad_entropies is not None:
        logs.add_(entropies[:, None]).mul_(-grad_entropies[:, None])
        found = probs.mul_(logs.add_(factor))
    else:
        found = probs.mul_(factor)
    if grad_logprobs is not None:
        found.scatter_add_(1, targets[:, None], grad_logprobs[:, None])
    return found.div_(temperature).to(dtype)


def _part_of(grad: Tensor | None, part: slice) -> Tensor | None:
    return None if grad is None else grad[part].clone()


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)


class _ChunkedLogprobs(torch.autograd.Function):
    """`token_logprobs` with a hand-written backward pass."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, options: HeadOptions
    ) -> tuple[Tensor, Tensor]:
        statistics = _compiled(_statistics) if options.is_compiled else _statistics
        size = targets.numel()
        logprobs = torch.empty(size, dtype=torch.float32, device=hidden.device)
        normalisers = torch.empty_like(logprobs)
        entropies = torch.empty_like(logprobs)
        for start in range(0, size, options.chunk_tokens):
            part = slice(start, start + options.chunk_tokens)
            logits = _logits(hidden[part], weight, options.fp32_head)
            # A copy: the compiler would tie the size of what a view is part of to the chunk's.
            found = statistics(logits, targets[part].clone(), options.temperature)
            logprobs[part], normalisers[part], entropies[part] = found
        ctx.save_for_backward(hidden, weight, targets, normalisers, entropies)
        ctx.options = options
        ctx.set_materialize_grads(False)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, Tensor | None, None, None]:
        options: HeadOptions = ctx.options
        gradients = _compiled(_logit_gradients) if options.is_compiled else _logit_gradients
        hidden, weight, targets, normalisers, entropies = ctx.saved_tensors
        grad_hidden = torch.zeros_like(hidden)
        # A frozen head, as with LoRA, needs none.
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        for start in range(0, targets.numel(), options.chunk_tokens):
            part = slice(start, start + options.chunk_tokens)
            logits = _logits(hidden[part], weight, options.fp32_head)
            of_part = (_part_of(grads[0], part), _part_of(grads[1], part))
            settings = (of_part, options.temperature, weight.dtype)
            known = (targets[part].clone(), normalisers[part].clone(), entropies[part].clone())
            scaled = gradients(logits, *known, *settings)
            grad_hidden[part] = scaled @ weight
            if grad_weight is None:
                continue
            if weight.dtype is torch.float32:
                grad_weight.addmm_(scaled.T, hidden[part])
            else:
                grad_weight += scaled.T @ hidden[part]
        return grad_hidden, None if grad_weight is None else grad_weight.to(weight.dtype), None, None

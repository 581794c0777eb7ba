"""Estimators of KL(policy || reference) from the sampled tokens. Legend: N packed tokens.

With d = log policy - log reference, and tokens sampled from the policy. Value and gradient are two
questions: an estimator that is right on average need not have the right gradient as a loss
(arXiv:2506.09477). What a masked position holds reaches neither.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def k1(logprobs: Tensor, ref_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """Return d: unbiased, high variance, may be negative.

    As a loss its gradient is 0 in expectation (the mean of the score function): use it as a metric, or in the
    reward, where its gradient is exactly that of KL(policy || reference).

    Args:
        logprobs: `[N]` under the policy; carries the gradient.
        ref_logprobs: `[N]` under the reference.
        loss_mask: `[N]` bool; the result is 0 where False.

    Reference:
        Schulman, "Approximating KL divergence", 2020.
    """
    return torch.where(loss_mask, logprobs - ref_logprobs.detach(), 0.0)


def k2(logprobs: Tensor, ref_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """Return d^2 / 2: biased as a value, low variance, never negative.

    As a loss its expected gradient is exactly that of KL(policy || reference).

    Args:
        logprobs: `[N]` under the policy; carries the gradient.
        ref_logprobs: `[N]` under the reference.
        loss_mask: `[N]` bool; the result is 0 where False.

    Reference:
        Schulman, "Approximating KL divergence", 2020; gradient, arXiv:2506.09477.
    """
    return 0.5 * k1(logprobs, ref_logprobs, loss_mask).square()


def k3(logprobs: Tensor, ref_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """Return exp(-d) - 1 + d: unbiased, low variance, never negative.

    As a loss its expected gradient is that of the other direction, KL(reference || policy).

    Args:
        logprobs: `[N]` under the policy; carries the gradient.
        ref_logprobs: `[N]` under the reference.
        loss_mask: `[N]` bool; the result is 0 where False.

    Reference:
        Schulman, "Approximating KL divergence", 2020; used in DeepSeekMath, arXiv:2402.03300, equation 4.
    """
    difference = k1(logprobs, ref_logprobs, loss_mask)
    return torch.expm1(-difference) + difference


def absolute(logprobs: Tensor, ref_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """Return |d|: biased as a value, never negative.

    As a loss its gradient pushes every token towards the reference with the same force; it is that of no KL.

    Args:
        logprobs: `[N]` under the policy; carries the gradient.
        ref_logprobs: `[N]` under the reference.
        loss_mask: `[N]` bool; the result is 0 where False.
    """
    return k1(logprobs, ref_logprobs, loss_mask).abs()


def importance_weighted(kl: Tensor, log_ratio: Tensor) -> Tensor:
    """Return KL estimates weighted with the ratio policy / sampling policy, the gradient of the ratio included.

    For tokens that an older policy sampled. With k1 or k3 both the value and the gradient are then exactly those
    of KL(policy || reference) in expectation.

    Args:
        kl: `[N]` from an estimator; carries the gradient.
        log_ratio: `[N]` policy minus sampling policy, 0 where masked; carries the gradient.

    Reference:
        DeepSeek-V3.2, arXiv:2512.02556, section 3.1 (unbiased KL estimate).
    """
    return log_ratio.exp() * kl


KL_ESTIMATORS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "k1": k1,
    "k2": k2,
    "k3": k3,
    "abs": absolute,
}
"""Estimators by config name (`algorithm.kl_estimator`)."""

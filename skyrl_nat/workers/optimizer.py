"""AdamW and its learning-rate schedule, which is a pure function of the step."""

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from skyrl_nat.config.model import OptimizerConfig
from skyrl_nat.workers.process_group import full_shape


def lr_at(step: int, config: OptimizerConfig, total_steps: int) -> float:
    """Return the learning rate of one optimizer step.

    Args:
        step: Steps done before this one; 0 for the first.
        config: Section `optimizer`.
        total_steps: Steps of the whole run; the schedule ends with the last of them and stays there.

    Returns:
        `lr * (step + 1) / warmup_steps` while warming up, then the schedule from `lr` to
        `lr * min_lr_ratio`.
    """
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    first = max(config.warmup_steps - 1, 0)
    progress = min(1.0, (step - first) / max(1, total_steps - 1 - first))
    falling = 1.0 - progress
    if config.schedule == "cosine":
        falling = 0.5 * (1.0 + math.cos(math.pi * progress))
    return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * falling)


def build_optimizer(parameters: Iterable[tuple[str, nn.Parameter]], config: OptimizerConfig) -> torch.optim.AdamW:
    """Return `adamw` with its state."""
    optimizer = adamw(parameters, config)
    init_state(optimizer, [parameter for group in optimizer.param_groups for parameter in group["params"]])
    return optimizer


def adamw(parameters: Iterable[tuple[str, nn.Parameter]], config: OptimizerConfig) -> torch.optim.AdamW:
    """Return a fused AdamW with no decay on norms and biases.

    Args:
        parameters: Names and parameters, each once.
        config: Section `optimizer`.

    Reference:
        AdamW, arXiv:1711.05101, algorithm 2.
    """
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for _, parameter in parameters:
        (decayed if len(full_shape(parameter)) > 1 else others).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": config.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        eps=config.eps,
        fused=True,
    )


def init_state(optimizer: torch.optim.AdamW, parameters: Iterable[Tensor]) -> None:
    """Make the state that the first step would make: a checkpoint could not be loaded into it before that step."""
    for parameter in parameters:
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """Yield every tensor of an optimizer's state."""
    for state in optimizer.state.values():
        yield from state.values()


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every group."""
    for group in optimizer.param_groups:
        group["lr"] = lr

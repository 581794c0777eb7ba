"""Coefficients that follow a target from step to step; the numbers themselves are kept in the checkpoint."""


def adapted_kl_coefficient(
    coefficient: float, *, measured: float, target: float, num_rollouts: int, horizon: int
) -> float:
    """Return the KL coefficient of the next step.

    Args:
        coefficient: Of this step, > 0.
        measured: KL(policy || reference) of this step, in nats per loss token.
        target: Wanted value of the same, > 0.
        num_rollouts: Rollouts of this step.
        horizon: Rollouts over which a full error (20 %) moves the coefficient by 20 %.

    Reference:
        Ziegler et al., arXiv:1909.08593, section 2.2.
    """
    error = min(max(measured / target - 1.0, -0.2), 0.2)
    return coefficient * (1.0 + error * num_rollouts / horizon)


def adapted_entropy_coefficient(
    coefficient: float, *, measured: float, target: float, step_size: float, largest: float
) -> float:
    """Return the entropy coefficient of the next step: up by a step below the target, down by one above it.

    Args:
        coefficient: Of this step, >= 0.
        measured: Mean entropy of this step, in nats per loss token.
        target: Wanted value of the same, > 0.
        step_size: Of the coefficient, > 0.
        largest: Upper bound of the coefficient.

    Reference:
        Skywork Open Reasoner 1, arXiv:2505.22312, section 4 (adaptive entropy control).
    """
    moved = coefficient + (step_size if measured < target else -step_size)
    return min(max(moved, 0.0), largest)

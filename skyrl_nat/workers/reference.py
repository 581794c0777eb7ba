"""The frozen model that the KL term measures distance from."""

from skyrl_nat.workers.base import ModelWorker


class ReferenceWorker(ModelWorker):
    """One rank of the reference: `build`, then `compute_logprobs` on the policy's grid."""

    is_trainable = False

"""What a task family's validator owes."""

from typing import Any, Protocol

from skyrl_nat.types import RewardResult, Task

SAMPLED_TOKENS = "num_sampled_tokens"
"""Key that every artifact gets once its rollout was played: the tokens that the policy sampled in it, end tokens
included, whatever engine, environment or harness it was. Artifacts that were made otherwise lack it."""


class Validator(Protocol):
    """Judges one artifact against one task. Thread-safe: several calls run at once."""

    def validate(self, task: Task, artifact: dict[str, Any], *, seed: int = 0, is_final: bool = False) -> RewardResult:
        """Return the reward of an artifact.

        Whatever the policy wrote, however broken, gives a reward with findings. An exception means that
        the validator itself failed; the rollout is then retried or dropped, never scored 0.

        Args:
            task: With its hidden part.
            artifact: What the environment handed over, for instance `{"files": {path: text}}`; of a rollout that
                was played with `SAMPLED_TOKENS`.
            seed: Of fresh inputs; the same for all rollouts that are compared with each other. Of those, equal
                artifacts are judged once.
            is_final: Whether checks that are too slow for every rollout are made as well.
        """
        ...

    def close(self) -> None:
        """Release processes; safe to call twice."""
        ...

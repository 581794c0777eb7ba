"""What a task family's validator owes."""

from typing import Any, Protocol

from skyrl_nat.types import RewardResult, Task


class Validator(Protocol):
    """Judges one artifact against one task. Thread-safe: several calls run at once."""

    def validate(self, task: Task, artifact: dict[str, Any]) -> RewardResult:
        """Return the reward of an artifact.

        Whatever the policy wrote, however broken, gives a reward with findings. An exception means that
        the validator itself failed; the rollout is then retried or dropped, never scored 0.

        Args:
            task: With its hidden part.
            artifact: What the environment handed over, for instance `{"files": {path: text}}`.
        """
        ...

    def close(self) -> None:
        """Release processes; safe to call twice."""
        ...

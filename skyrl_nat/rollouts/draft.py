"""A rollout while it is being played: exactly the tokens that the engine was given and gave back."""

from dataclasses import dataclass, field
from typing import Any

from skyrl_nat.rewards.validators import SAMPLED_TOKENS
from skyrl_nat.types import Completion, Message, Outcome, Rollout, Task, Turn


@dataclass(slots=True)
class Draft:
    """Grows by contexts and completions; nothing in it is ever made again from text."""

    prompt: list[Message]
    token_ids: list[int]
    loss_mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    outcome: Outcome = Outcome.TRUNCATED
    reason: str = "turn limit"
    environment_reward: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    segment_starts: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self.append_context([])

    @property
    def context(self) -> list[int]:
        """Tokens of the last segment: the next turn's prompt."""
        return self.token_ids[self.segment_starts[-1] :]

    def set_context(self, token_ids: list[int]) -> None:
        """Go on with a prompt: as an extension of the last segment where it is one, else in a new one."""
        context = self.context
        if token_ids[: len(context)] == context:
            self.append_context(token_ids[len(context) :])
            return
        self.segment_starts.append(len(self.token_ids))
        self.append_context(token_ids)

    def append_context(self, token_ids: list[int]) -> None:
        """Add tokens that were not sampled and pad the per-token lists up to the sequence's length."""
        self.token_ids.extend(token_ids)
        missing = len(self.token_ids) - len(self.loss_mask)
        self.loss_mask.extend([False] * missing)
        self.logprobs.extend([0.0] * missing)
        self.versions.extend([-1] * missing)

    def append_completion(self, completion: Completion) -> None:
        """Add sampled tokens."""
        self.token_ids.extend(completion.token_ids)
        self.loss_mask.extend([True] * len(completion.token_ids))
        self.logprobs.extend(completion.logprobs)
        self.versions.extend(completion.token_versions)

    def to_rollout(self, rollout_id: str, task: Task, artifact: dict[str, Any]) -> Rollout:
        """Return what was played, not yet scored."""
        return Rollout(
            rollout_id=rollout_id,
            task=task.visible(),
            token_ids=self.token_ids,
            loss_mask=self.loss_mask,
            rollout_logprobs=self.logprobs,
            token_versions=self.versions,
            turns=self.turns,
            prompt=self.prompt,
            outcome=self.outcome,
            reason=self.reason,
            artifact={**artifact, SAMPLED_TOKENS: sum(self.loss_mask)},
            metrics={**self.metrics, "environment_reward": self.environment_reward},
            segment_starts=self.segment_starts,
        )

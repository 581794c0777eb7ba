"""What an environment owes beyond skyrl-gym's `BaseTextEnv`, and the record that its worker returns."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from skyrl_nat.types import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentReply:
    """The answer of one `step`."""

    observations: list[Message]
    """Messages appended before the next turn; empty when done."""
    reward: float
    """The step's own reward; summed for families without a validator, otherwise only logged."""
    is_done: bool
    is_policy_failure: bool = False
    """True where the policy's output made going on impossible."""
    is_truncated: bool = False
    """True where it is done because a limit of its own was reached, not because the work ended."""
    reason: str = ""
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    artifact: dict[str, Any] | None = None
    """What was made, where the environment is done and closed already; None while it is open."""


class AgentEnvironment(Protocol):
    """A skyrl-gym `BaseTextEnv` (`init`, `step`, `close`, `get_metrics`) that also hands over what was made."""

    def artifact(self) -> dict[str, Any]:
        """Return what the validator judges, for instance `{"files": {path: text}}`; callable at any time."""
        ...

"""Records that travel between parts: plain data, no torch, no Ray.

Life of a batch: `Task` -> `Rollout` (of `Turn`s, of `Completion`s) -> `RolloutGroup` -> `TrainingSample`.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypedDict


class Message(TypedDict):
    """One chat message."""

    role: str
    content: str


class FinishReason(StrEnum):
    """Why an engine stopped sampling."""

    STOP = "stop"
    """The model sampled an end-of-sequence token; it is the last token returned."""
    LENGTH = "length"
    """The token limit was reached; no end token is added."""
    STOP_WORD = "stop_word"
    """The text contains a stop word; the token that completed it is the last one, no end token is added."""
    ABORT = "abort"
    """The request was cancelled; the tokens are incomplete and never scored as an answer."""


class Outcome(StrEnum):
    """How a rollout ended; decides whether it may enter the loss and the group's statistics."""

    FINISHED = "finished"
    """The environment said done. Scored and trained."""
    TRUNCATED = "truncated"
    """Turn, token or time budget used up. Scored on what exists, trained, counted apart."""
    POLICY_FAILURE = "policy_failure"
    """The policy's own output made going on impossible (nothing usable). Scored, trained."""
    VALIDATOR_FAILURE = "validator_failure"
    """The validator could not reach a verdict. Retried, then dropped; never a reward of 0."""
    SCREENED = "screened"
    """Judged, and suspected of cheating where the config drops suspects. Logged with its reward, not trained."""
    INFRASTRUCTURE_FAILURE = "infrastructure_failure"
    """Engine, worker or network failed. Retried, then dropped; never a reward of 0."""

    @property
    def is_trainable(self) -> bool:
        """True where the reward says something about the policy."""
        return self in (Outcome.FINISHED, Outcome.TRUNCATED, Outcome.POLICY_FAILURE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One row of the data: what is to be done."""

    task_id: str
    """Unique in the data set."""
    family: str
    """Name in `environments.registry`, for instance `nat_agent`."""
    payload: dict[str, Any]
    """What the policy may see (through the environment's prompt)."""
    hidden: dict[str, Any] = field(default_factory=dict[str, Any])
    """What only the reward worker sees: hidden tests, vectors. Never in a prompt, a log or the sandboxed files."""
    difficulty: int = 1
    """1 (easiest) to 5."""

    def visible(self) -> "Task":
        """Return this task without its hidden part, for environments and logs."""
        return Task(task_id=self.task_id, family=self.family, payload=self.payload, difficulty=self.difficulty)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How an engine samples. Only what the trainer can reproduce exactly in its own log-probs."""

    max_new_tokens: int
    """Upper bound of tokens returned; at least 1."""
    temperature: float = 1.0
    """Logits are divided by it; 0 means greedy (evaluation only, log-probs are then at temperature 1)."""
    seed: int | None = None
    """Seed of this request's own random stream; None draws one."""
    stop: tuple[str, ...] = ()
    """Stop words: sampling ends as soon as the text of the sampled tokens contains one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One engine call: token ids in."""

    request_id: str
    """Unique; also the stickiness key up to its first `/` (a rollout stays on its engine)."""
    prompt_token_ids: list[int]
    """All tokens so far, never truncated by the engine."""
    sampling: SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One engine answer: token ids out."""

    token_ids: list[int]
    """Sampled tokens, the end token included when the reason is STOP."""
    logprobs: list[float]
    """fp32 log-prob of each sampled token at the sampling temperature; same length as `token_ids`."""
    finish_reason: FinishReason
    token_versions: list[int]
    """Policy version that sampled each token; same length as `token_ids`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """One check that a validator made, for logs and analysis."""

    name: str
    is_ok: bool
    """False also where the check was not reached."""
    seconds: float
    """Wall clock; 0 where it was not measured apart."""
    evidence: str = ""
    """What was seen, short; never a hidden value. Empty where nothing was wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """What the reward worker says about one rollout."""

    total: float
    """Weighted sum of the parts; in [0, 1] for the shipped families."""
    parts: dict[str, float]
    """Unweighted value of each part, by name."""
    is_success: bool
    """True where every hidden requirement holds."""
    findings: list[str] = field(default_factory=list[str])
    """What was wrong, most important first, for logs and analysis."""
    suspicions: list[str] = field(default_factory=list[str])
    """Signs of an attempt to be paid without doing the work: counted and, if wanted, screened; never rewarded."""
    stages: list[StageReport] = field(default_factory=list["StageReport"])
    """Every check that was made, in order."""
    is_by_turn: bool = False
    """True where the total is the sum of the turns' own rewards, each earned when its turn ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One completion and the environment's reply, as text, for logs."""

    completion_text: str
    observations: list[Message]
    num_prompt_tokens: int
    num_completion_tokens: int
    finish_reason: FinishReason
    generate_s: float
    """Seconds from request to answer."""
    environment_s: float
    """Seconds spent in the environment's step."""
    reward: float = 0.0
    """What the environment's step gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """All turns of one environment, as one token sequence.

    `token_ids`, `loss_mask`, `rollout_logprobs` and `token_versions` have one entry per token of the
    whole sequence. Where `loss_mask` is False the log-prob is 0.0 and the version -1.
    """

    rollout_id: str
    task: Task
    """Without the hidden part."""
    token_ids: list[int]
    loss_mask: list[bool]
    """True exactly on sampled tokens."""
    rollout_logprobs: list[float]
    token_versions: list[int]
    turns: list[Turn]
    prompt: list[Message]
    outcome: Outcome
    reason: str = ""
    """Why the outcome is what it is; empty for FINISHED."""
    reward: RewardResult | None = None
    """None until scored, and for outcomes that are not trainable."""
    artifact: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the environment hands to the reward worker, for instance the files written; once the rollout was played also
    how many tokens were sampled (`rewards.validators.SAMPLED_TOKENS`)."""
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    segment_starts: list[int] = field(default_factory=lambda: [0])
    """Where a new context begins, the first token always: a turn whose prompt did not extend what came before."""

    @property
    def oldest_version(self) -> int:
        """Lowest policy version among the sampled tokens, -1 if none was sampled."""
        return min((v for v in set(self.token_versions) if v >= 0), default=-1)

    @property
    def num_loss_tokens(self) -> int:
        """Number of sampled tokens."""
        return sum(self.loss_mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """The G rollouts of one task."""

    task: Task
    index: int
    """Position of the task in the stream of the run; groups are consumed in this order."""
    rollouts: list[Rollout]
    score_s: float = 0.0
    """Seconds between the end of the last rollout and its verdict."""

    @property
    def valid_rollouts(self) -> list[Rollout]:
        """Rollouts that may enter statistics and loss, in order."""
        return [r for r in self.rollouts if r.outcome.is_trainable and r.reward is not None]

    @property
    def oldest_version(self) -> int:
        """Lowest policy version of any member that has sampled tokens, -1 if none."""
        return min((r.oldest_version for r in self.valid_rollouts if r.oldest_version >= 0), default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSample:
    """One flat token sequence ready for training; lists have one entry per token."""

    sample_id: str
    """The rollout's id; with several segments, and `#` and their number."""
    rollout_id: str
    """Samples of one rollout share it and count once."""
    group_id: str
    """The task's id and stream index: samples of one group share it."""
    token_ids: list[int]
    loss_mask: list[bool]
    rollout_logprobs: list[float]
    advantages: list[float]
    """0.0 where `loss_mask` is False."""
    oldest_version: int

    @property
    def num_tokens(self) -> int:
        """Tokens of the sequence, prompt included."""
        return len(self.token_ids)

    @property
    def num_loss_tokens(self) -> int:
        """Tokens that enter the loss."""
        return sum(self.loss_mask)

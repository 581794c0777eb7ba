"""What is played and trained in a step: lengths, turns and verdicts, which no config knows."""

from dataclasses import dataclass

from skyrl_nat.config.run import RunConfig

PROMPT_TOKENS = {
    ("nat_agent", "multi_turn"): 1646,
    ("nat_agent", "one_shot"): 384,
    ("task_dag", "one_shot"): 359,
    ("jira", "one_shot"): 208,
}
"""Means over the shipped tasks with SmolLM2's tokenizer, by family and form."""
_USUAL_PROMPT = 512
_LONGEST_IN_MEANS = 8.0

VERDICT_S = {"nat_agent": 1.8, "task_dag": 0.01, "jira": 0.01}
"""Seconds of one verdict on one core by family: validator_speed.json, median of the full check with two workers; the
other families only compare text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Means over rollouts; lengths are lognormal around them."""

    prompt_tokens: float
    """Before the first sampled token."""
    sampled_tokens: float
    """Of all turns."""
    longest_tokens: float
    """The most that a rollout samples."""
    observation_tokens: float = 0.0
    """Of all replies."""
    turns: float = 1.0
    spread: float = 0.5
    """Standard deviation of the logarithm of sampled tokens."""
    verdict_s: float = 0.0
    """Seconds of one verdict on one core."""
    reply_s: float = 0.0
    """Seconds of all the environment's replies to a rollout."""

    @property
    def total_tokens(self) -> float:
        """Of a rollout when it is over."""
        return self.prompt_tokens + self.sampled_tokens + self.observation_tokens


def guess_workload(config: RunConfig, *, mean_tokens: float | None = None, spread: float = 0.5) -> Workload:
    """Return what a run is likely to play: half of what its limits allow.

    Args:
        config: The run.
        mean_tokens: Sampled by a rollout, all turns.
        spread: Of `Workload`.
    """
    rollout = config.rollout
    environment = config.environment
    usual = PROMPT_TOKENS.get((environment.family, str(environment.form)), _USUAL_PROMPT)
    prompt = min(usual, rollout.max_total_tokens / 2)
    room = rollout.max_total_tokens - prompt
    longest = min(room, rollout.max_turns * rollout.max_new_tokens)
    sampled = min(longest, mean_tokens) if mean_tokens else longest / 2
    turns = max(1.0, min(rollout.max_turns, 2 * sampled / rollout.max_new_tokens))
    replies = min(max(0.0, room - sampled), (turns - 1) * environment.max_observation_chars / 8)
    return Workload(
        prompt_tokens=prompt,
        sampled_tokens=sampled,
        longest_tokens=min(longest, _LONGEST_IN_MEANS * sampled),
        observation_tokens=replies,
        turns=turns,
        spread=spread,
        verdict_s=VERDICT_S.get(environment.family, 0.0),
    )

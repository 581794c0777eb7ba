"""What the trainer itself answers to prompts: the measure of every export."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from skyrl_nat.batching.packing import pack, unpack_per_sample
from skyrl_nat.controller.update import call_per_row
from skyrl_nat.types import TrainingSample
from skyrl_nat.weight_sync.base import WorkerCalls

NUM_LIKELIEST = 20
"""Tokens of which the trainer's log-prob is known in each place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The trainer's likeliest next tokens in one place."""

    ids: list[int]
    """Likeliest first."""
    logprobs: list[float]


@dataclass(slots=True, kw_only=True)
class Answer:
    """The trainer's greedy answer to one prompt."""

    prompt: list[int]
    places: list[Place] = field(default_factory=list[Place])

    @property
    def token_ids(self) -> list[int]:
        """The greedy tokens."""
        return [place.ids[0] for place in self.places]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data: the prompt, the greedy tokens and their log-probs."""
        return {
            "prompt": self.prompt,
            "token_ids": self.token_ids,
            "logprobs": [place.logprobs[0] for place in self.places],
        }


async def greedy_answers(
    policy: WorkerCalls,
    prompts: Sequence[list[int]],
    *,
    num_tokens: int,
    stop_token_ids: Collection[int],
    num_ranks: int,
    token_budget: int,
) -> list[Answer]:
    """Let the policy ranks answer greedily, with the forward pass of training.

    Args:
        policy: Built ranks whose sampling temperature is 1.
        prompts: Token ids; one and its answer must fit into `token_budget`.
        num_tokens: Of an answer at most.
        stop_token_ids: End an answer, and belong to it.
        num_ranks: Data-parallel ranks.
        token_budget: Of a micro-batch.
    """
    answers = [Answer(prompt=prompt) for prompt in prompts]
    for _ in range(num_tokens):
        going = {
            f"{number}": answer
            for number, answer in enumerate(answers)
            if not answer.places or answer.places[-1].ids[0] not in stop_token_ids
        }
        if not going:
            break
        samples = [_next_token(name, [*answer.prompt, *answer.token_ids]) for name, answer in going.items()]
        grid = pack(samples, [1.0] * len(samples), num_ranks=num_ranks, token_budget=token_budget)
        rows = await call_per_row(policy, "compute_likeliest", [(row, NUM_LIKELIEST) for row in grid])
        for row, results in zip(grid, rows, strict=True):
            ids = unpack_per_sample(row, [found for found, _ in results])
            logprobs = unpack_per_sample(row, [found for _, found in results])
            for name, found in ids.items():
                going[name].places.append(Place(ids=found[-1].int().tolist(), logprobs=logprobs[name][-1].tolist()))
    return answers


def _next_token(name: str, known: list[int]) -> TrainingSample:
    """Return a sample whose last token is asked for; what stands in its place is not looked at."""
    length = len(known) + 1
    return TrainingSample(
        sample_id=name,
        rollout_id=name,
        group_id=name,
        token_ids=[*known, known[-1]],
        loss_mask=[False] * len(known) + [True],
        rollout_logprobs=[0.0] * length,
        advantages=[0.0] * length,
        oldest_version=0,
    )

"""Whether engine and trainer are the same policy on the user's model and layout."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from skyrl_nat.batching.packing import pack, unpack_per_sample
from skyrl_nat.controller.update import call_per_row
from skyrl_nat.doctor.check import Check, at_most, equal, none_of
from skyrl_nat.types import Completion, TrainingSample
from skyrl_nat.weight_sync.base import WorkerCalls

LAYOUT_TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}
"""Largest difference of a log-prob between two layouts of one batch, by compute format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One answer of the engine to one prompt."""

    prompt: list[int]
    completion: Completion

    def sample(self, name: str, group: str) -> TrainingSample:
        """Return it as the trainer would see it: answers of a group share what is computed of their prompt."""
        context, sampled = len(self.prompt), len(self.completion.token_ids)
        return TrainingSample(
            sample_id=name,
            rollout_id=name,
            group_id=group,
            token_ids=[*self.prompt, *self.completion.token_ids],
            loss_mask=[False] * context + [True] * sampled,
            rollout_logprobs=[0.0] * context + self.completion.logprobs,
            advantages=[0.0] * (context + sampled),
            oldest_version=0,
        )


async def trainer_logprobs(
    policy: WorkerCalls, samples: Sequence[TrainingSample], *, num_ranks: int, token_budget: int
) -> dict[str, Tensor]:
    """Return the trainer's log-probs per sample id, computed in its own layout."""
    grid = pack(samples, [1.0] * len(samples), num_ranks=num_ranks, token_budget=token_budget)
    rows = await call_per_row(policy, "compute_logprobs", [(row,) for row in grid])
    found: dict[str, Tensor] = {}
    for row, values in zip(grid, rows, strict=True):
        found |= unpack_per_sample(row, values)
    return found


def check_agreement(samples: Sequence[TrainingSample], found: dict[str, Tensor], *, limit: float) -> list[Check]:
    """Return the checks of rows 33, 38 and 51: same tokens, same temperature, same log-probs.

    Args:
        samples: With the engine's log-probs.
        found: The trainer's per sample id.
        limit: Largest mean difference.
    """
    differences = torch.cat([_loss_values(s, found[s.sample_id]) - _loss_values(s, None) for s in samples])
    shifted = torch.cat([(_loss_values(s, found[s.sample_id]).roll(1) - _loss_values(s, None))[1:] for s in samples])
    mean, ratio_error = float(differences.abs().mean()), float(differences.abs().exp().mean())
    return [
        at_most("33, 38", "mean |engine - trainer log-prob|", mean, limit),
        at_most("38", "mean exp of that difference", ratio_error, 1.05),
        Check(
            rows="51",
            name="the same, shifted by one token",
            expected=f"> {mean:.3g}",
            found=f"{float(shifted.abs().mean()):.3g}" if shifted.numel() else "nothing to shift",
            is_ok=not shifted.numel() or float(shifted.abs().mean()) > mean,
        ),
    ]


def check_layouts(alone: dict[str, Tensor], together: dict[str, Tensor], dtype: str) -> Check:
    """Return the check of rows 48 and 49: packed or alone, a sample's log-probs are the same."""
    worst = max(float((alone[name] - together[name]).abs().max()) for name in alone)
    return at_most("48", "packed against alone, largest difference", worst, LAYOUT_TOLERANCE[dtype])


def check_repeatable(first: dict[str, Tensor], second: dict[str, Tensor]) -> Check:
    """Return the check of row 66: two passes over the same weights give the same bits."""
    is_same = all(torch.equal(first[name], second[name]) for name in first)
    return equal("66", "two passes of the trainer give equal bits", is_same, True)


def check_neighbours(before: dict[str, Tensor], after: dict[str, Tensor], changed: str) -> Check:
    """Return the check of row 49: changing one sample of a batch leaves the others' bits alone."""
    leaks = [name for name in before if name != changed and not torch.equal(before[name], after[name])]
    return none_of("49", "samples that change when another one does", leaks)


def check_streams(answers: Sequence[Played]) -> Check:
    """Return the check of row 64: seeds differ, so that long answers to one prompt do."""
    texts = {tuple(answer.completion.token_ids) for answer in answers}
    name = f"different ones of {len(answers)} answers to one prompt"
    return Check(rows="64", name=name, expected=">= 2", found=str(len(texts)), is_ok=len(texts) >= 2)


def check_record(answers: Sequence[Played], limit: int, eos: int) -> list[Check]:
    """Return the checks of rows 36, 37, 47: what an engine says about its own tokens."""
    lengths = [(len(a.completion.token_ids), len(a.completion.logprobs)) for a in answers]
    values = [value for a in answers for value in a.completion.logprobs]
    cut = [a for a in answers if a.completion.finish_reason == "length"]
    made_up = [a for a in cut if a.completion.token_ids[-1:] == [eos] and len(a.completion.token_ids) < limit]
    return [
        equal("36", "answers without a log-prob for each token", sum(a != b for a, b in lengths), 0),
        equal("37", "log-probs that are not finite and <= 0", sum(not _is_logprob(v) for v in values), 0),
        equal("47", "cut answers with a made-up end token", len(made_up), 0),
    ]


def _is_logprob(value: float) -> bool:
    return math.isfinite(value) and value <= 1e-6


def _loss_values(sample: TrainingSample, values: Tensor | None) -> Tensor:
    """Return log-probs of the loss tokens: the trainer's, or the engine's own where none are given."""
    mask = torch.tensor(sample.loss_mask)
    return torch.tensor(sample.rollout_logprobs)[mask] if values is None else values[mask]

"""What the comparisons with TRL share: random sequences, their packed form, the difference and the report."""

import json
import logging
import math
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skyrl_nat.types import TrainingSample

TOLERANCE = 1e-6
SEEDS = range(5)
NUM_SEQUENCES, MAX_LENGTH, NUM_PROMPT_TOKENS = 12, 24, 3


@dataclass(kw_only=True)
class Batch:
    """Padded on the right, `[B, T]` but for `[B]` advantages, fp64; what is masked must not matter."""

    completion_mask: Tensor
    tool_mask: Tensor
    """0 where the environment wrote the token."""
    advantages: Tensor
    logprobs: Tensor
    entropies: Tensor
    old: Tensor
    rollout: Tensor
    ref: Tensor

    @property
    def mask(self) -> Tensor:
        """The loss tokens."""
        return (self.completion_mask * self.tool_mask).bool()


def random_batch(seed: int, name: str) -> Batch:
    """Return ragged sequences; every second one has a mean log-ratio within GSPO's clip range."""
    generator = torch.Generator().manual_seed(seed)

    def normal(scale: float) -> Tensor:
        return scale * torch.randn(NUM_SEQUENCES, MAX_LENGTH, generator=generator, dtype=torch.float64)

    lengths = torch.randint(8, MAX_LENGTH + 1, (NUM_SEQUENCES, 1), generator=generator)
    places = torch.arange(MAX_LENGTH)
    starts = torch.randint(1, 4, (NUM_SEQUENCES, 1), generator=generator)
    ends = starts + torch.randint(0, 4, (NUM_SEQUENCES, 1), generator=generator)
    completion_mask, tool_mask = (places < lengths).long(), 1 - ((places >= starts) & (places < ends)).long()
    # Packing stores the engine's log-probs and the advantages in fp32.
    rollout = (-3.0 + normal(1.0)).float().double()
    advantages = torch.randn(NUM_SEQUENCES, generator=generator).double()
    old = rollout + normal(0.4)
    log_ratio = normal(2.0).clamp(-4.0, 3.0) if name == "cispo" else normal(0.4)
    mask = completion_mask * tool_mask
    if name == "gspo":
        means = (log_ratio * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
        log_ratio[::2] += (normal(2e-4)[:, :1] - means)[::2]
    logprobs = old + log_ratio
    return Batch(
        completion_mask=completion_mask,
        tool_mask=tool_mask,
        advantages=advantages,
        logprobs=logprobs.requires_grad_(),
        entropies=normal(1.0).abs().requires_grad_(),
        old=old,
        rollout=rollout,
        ref=logprobs.detach() + normal(0.5),
    )


def our_samples(batch: Batch) -> list[TrainingSample]:
    """Return the sequences without padding, behind their prompts."""
    samples = []
    for row in range(NUM_SEQUENCES):
        length = int(batch.completion_mask[row].sum())
        mask = [False] * NUM_PROMPT_TOKENS + batch.mask[row, :length].tolist()
        samples.append(
            TrainingSample(
                sample_id=str(row),
                rollout_id=str(row),
                group_id=str(row // 2),
                token_ids=[row] * len(mask),
                loss_mask=mask,
                rollout_logprobs=[0.0] * NUM_PROMPT_TOKENS + batch.rollout[row, :length].tolist(),
                advantages=[float(batch.advantages[row]) if is_kept else 0.0 for is_kept in mask],
                oldest_version=0,
            )
        )
    return samples


def packed(values: Tensor, rows: Sequence[int], batch: Batch) -> Tensor:
    """Return the values of some sequences one after the other, 0 on prompts; two zeros for a filler."""
    prompt = torch.zeros(NUM_PROMPT_TOKENS, dtype=torch.float64)
    parts = [part for row in rows for part in (prompt, values[row, : int(batch.completion_mask[row].sum())])]
    return torch.cat(parts) if rows else torch.zeros(2, dtype=torch.float64)


def relative_difference(found: Tensor, expected: Tensor) -> float:
    """Return the largest relative difference of any entry, infinite where only one of the two is 0."""
    kept = expected != 0
    if not torch.equal(found != 0, kept):
        return math.inf
    return float(((found - expected)[kept] / expected[kept]).abs().max())


def report(cases: Callable[[str], dict[str, dict[str, Any]]], **more: Any) -> int:
    """Print the JSON of all cases and return the exit code.

    Args:
        cases: Compares, given a folder for TRL's configuration; name -> what was found, `passed` among it.
        more: Further entries.
    """
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    import trl

    with tempfile.TemporaryDirectory() as folder:
        found = cases(folder)
    passed = all(case["passed"] for case in found.values())
    whole = {
        "trl": trl.__version__,
        "torch": torch.__version__,
        "work": f"{NUM_SEQUENCES} sequences of 8 to {MAX_LENGTH} tokens with observations, {len(SEEDS)} seeds, fp64",
        "tolerance": TOLERANCE,
        "passed": passed,
        "cases": found,
        **more,
    }
    print(json.dumps(whole, indent=1))
    return 0 if passed else 1

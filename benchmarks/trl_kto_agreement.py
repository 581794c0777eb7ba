"""Our KTO loss against TRL's on the same random tokens, in fp64.

usage: python benchmarks/trl_kto_agreement.py > benchmarks/results/trl_kto_agreement.json

Needs the packages of benchmarks/requirements.txt beside the usual ones. Prints one JSON with the largest relative
differences of loss, gradient and baseline per case; exits with 1 if one is above 1e-6, or if a case compares nothing.

TRL's side is `KTOTrainer._compute_loss` itself, on a trainer whose policy and reference are replaced by given
log-probs; the mismatched pairs of the baseline are given to both.
"""

import sys
from collections import defaultdict
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from agreement import MAX_LENGTH, NUM_SEQUENCES, SEEDS, TOLERANCE, Batch, our_samples, packed, random_batch, report
from agreement import relative_difference as difference
from torch import Tensor

from skyrl_nat.algorithms.reduction import REDUCTIONS
from skyrl_nat.batching.mismatch import kto_baseline
from skyrl_nat.batching.packing import pack
from skyrl_nat.config.load import load_config
from skyrl_nat.workers.objective import StepConstants, micro_batch_loss

CASES = {
    "plain": {"kto_beta": 0.1, "desirable_weight": 1.0, "undesirable_weight": 1.0},
    "weights": {"kto_beta": 0.1, "desirable_weight": 1.5, "undesirable_weight": 0.5},
    "a large beta": {"kto_beta": 0.5, "desirable_weight": 1.0, "undesirable_weight": 1.25},
    "a baseline of 0": {"kto_beta": 0.1, "desirable_weight": 1.0, "undesirable_weight": 1.0},
}
CLAMPED = "a baseline of 0"


def labels_of(seed: int) -> Tensor:
    """Return `[B]` which sequences are desirable: some are, some are not."""
    found = torch.rand(NUM_SEQUENCES, generator=torch.Generator().manual_seed(seed)) < 0.5
    found[0], found[1] = True, False
    return found


def mismatched(seed: int, *, is_clamped: bool) -> tuple[Tensor, Tensor]:
    """Return `[B, T]` log-probs of mismatched pairs under policy and reference; below the reference where clamped."""
    generator = torch.Generator().manual_seed(1000 + seed)
    reference = -3.0 + torch.randn(NUM_SEQUENCES, MAX_LENGTH, generator=generator, dtype=torch.float64)
    shift = -0.2 if is_clamped else 0.2
    return reference + shift + 0.1 * torch.randn(reference.shape, generator=generator, dtype=torch.float64), reference


def trl_loss(
    batch: Batch, labels: Tensor, pairs: tuple[Tensor, Tensor], settings: dict[str, float]
) -> tuple[Tensor, float]:
    """Return TRL's loss and baseline."""
    from trl import KTOTrainer

    trainer = KTOTrainer.__new__(KTOTrainer)
    trainer.beta = settings["kto_beta"]
    trainer.desirable_weight, trainer.undesirable_weight = settings["desirable_weight"], settings["undesirable_weight"]
    trainer.loss_type, trainer.calculate_KL, trainer.precompute_ref_logps = "kto", True, False
    trainer.aux_loss_enabled, trainer._total_train_tokens, trainer._tp_size = False, 0, 1
    trainer.args = SimpleNamespace(gradient_checkpointing=False, gradient_checkpointing_kwargs=None)
    trainer._metrics = defaultdict(lambda: defaultdict(list))
    trainer.accelerator = SimpleNamespace(
        device=torch.device("cpu"), gather_for_metrics=lambda x: x, autocast=nullcontext
    )
    mask = batch.mask
    policy, reference = Model(batch.logprobs * mask, pairs[0] * mask), Model(batch.ref * mask, pairs[1] * mask)
    trainer.model, trainer.ref_model = policy, reference
    ids = torch.zeros(NUM_SEQUENCES, MAX_LENGTH + 1, dtype=torch.long)
    ones = torch.ones_like(ids)
    inputs = {
        "input_ids": ids, "attention_mask": ones, "completion_mask": torch.cat([ids[:, :1], mask.long()], 1),
        "KL_input_ids": ids + 1, "KL_attention_mask": ones, "KL_completion_mask": ones, "label": labels,
    }  # fmt: skip
    loss = trainer._compute_loss(policy, inputs, False)
    return loss, trainer._metrics["train"]["kl"][0]


class Model(torch.nn.Module):
    """Answers with given log-probs: those of the pairs where the input ids are ones."""

    def __init__(self, own: Tensor, pairs: Tensor) -> None:
        super().__init__()
        self.own, self.pairs = own, pairs
        self.is_gradient_checkpointing = False

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        """Return log-probs `[B, T]`, and zeros for what only metrics read."""
        logprobs = self.pairs if bool(input_ids.any()) else self.own
        zeros = torch.zeros_like(logprobs)
        return SimpleNamespace(log_probs=logprobs, entropy=zeros, mean_logits=zeros)


def our_loss(
    batch: Batch, labels: Tensor, pairs: tuple[Tensor, Tensor], settings: dict[str, float]
) -> tuple[Tensor, float]:
    """Return our loss, added up over two ranks and their micro-batches, and the baseline."""
    config = load_config(
        ["algorithm=kto", "environment.recorded_files=[given]", *(f"algorithm.{k}={v}" for k, v in settings.items())]
    ).algorithm
    weight = torch.where(labels, config.desirable_weight, -config.undesirable_weight)
    batch.advantages = weight.double()
    samples = our_samples(batch)
    weights = REDUCTIONS[config.reduction](
        [sample.num_loss_tokens for sample in samples],
        [sample.rollout_id for sample in samples],
        [sample.group_id for sample in samples],
        max_tokens_divisor=None,
    )
    grid = pack(samples, weights.token_weights, num_ranks=2, token_budget=64)
    micro_batches = [micro_batch for row in grid for micro_batch in row]
    rows_of = {id(item): [int(name) for name in item.sample_ids] for item in micro_batches}
    for item in micro_batches:
        item.old_logprobs, item.ref_logprobs = (packed(values, rows_of[id(item)], batch) for values in pairs)
    baseline = kto_baseline(micro_batches)
    constants = StepConstants(denominator=weights.denominator, kto_baseline=baseline)
    per_token = torch.tensor(weights.token_weights, dtype=torch.float64)[:, None].expand(-1, MAX_LENGTH)
    numerators = []
    for item in micro_batches:
        rows = rows_of[id(item)]
        item.advantages = item.advantages.double()
        item.token_weights = packed(per_token, rows, batch) * item.loss_mask
        item.old_logprobs = item.ref_logprobs = packed(batch.ref, rows, batch)
        logprobs, entropies = packed(batch.logprobs, rows, batch), packed(batch.entropies, rows, batch)
        numerators.append(micro_batch_loss(logprobs, entropies, item, config, constants).numerator)
    return torch.stack(numerators).sum() / weights.denominator, baseline


def compare(name: str, settings: dict[str, float]) -> dict[str, Any]:
    """Return the largest differences over all seeds."""
    losses, gradients, baselines, found_baselines = [], [], [], []
    for seed in SEEDS:
        batch, labels, pairs = random_batch(seed, "kto"), labels_of(seed), mismatched(seed, is_clamped=name == CLAMPED)
        theirs, their_baseline = trl_loss(batch, labels, pairs, settings)
        ours, baseline = our_loss(batch, labels, pairs, settings)
        losses.append(difference(ours.detach(), theirs.detach()))
        gradients.append(
            difference(*(torch.autograd.grad(loss, [batch.logprobs], retain_graph=True)[0] for loss in (ours, theirs)))
        )
        baselines.append(abs(baseline - their_baseline) / max(their_baseline, 1.0))
        found_baselines.append(baseline)
    is_told = max(found_baselines) == 0 if name == CLAMPED else min(found_baselines) > 0
    return {
        **settings,
        "baseline": sum(found_baselines) / len(found_baselines),
        "loss_difference": max(losses),
        "gradient_difference": max(gradients),
        "baseline_difference": max(baselines),
        "passed": max(*losses, *gradients, *baselines) <= TOLERANCE and is_told,
    }


def main() -> int:
    """Compare all cases and print the JSON."""
    return report(lambda _: {name: compare(name, settings) for name, settings in CASES.items()})


if __name__ == "__main__":
    sys.exit(main())

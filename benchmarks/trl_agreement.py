"""Our objective against TRL's GRPO loss on the same random tokens, in fp64.

usage: python benchmarks/trl_agreement.py > benchmarks/results/trl_agreement.json

Needs the packages of benchmarks/requirements.txt beside the usual ones. Prints one JSON with the largest relative
differences of loss and gradient per case; exits with 1 if one is above 1e-6, or if a case compares nothing.

TRL's side is `GRPOTrainer._compute_loss` itself, with the settings of a real `GRPOConfig`, on a trainer whose model is
replaced by given log-probs. It gets a padded batch, in one or several micro-batches; ours gets it packed, on two
ranks. Advantages are given to both. The gradient is that by the log-prob and the entropy of every token.
"""

import sys
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from agreement import (
    MAX_LENGTH,
    NUM_PROMPT_TOKENS,
    NUM_SEQUENCES,
    SEEDS,
    TOLERANCE,
    Batch,
    our_samples,
    packed,
    random_batch,
    relative_difference,
    report,
)
from torch import Tensor

from skyrl_nat.algorithms.reduction import REDUCTIONS
from skyrl_nat.batching.packing import pack
from skyrl_nat.config.algorithm import AlgorithmConfig
from skyrl_nat.config.load import load_config
from skyrl_nat.workers.objective import StepConstants, micro_batch_loss, named_metrics


@dataclass(frozen=True, kw_only=True)
class Case:
    """One objective that both have."""

    preset: str
    """File of `conf/algorithm`."""
    ours: dict[str, Any] = field(default_factory=dict)
    """What is changed in the preset, beside `old_logprobs`."""
    trl: dict[str, Any]
    """Of `GRPOConfig`; the rest are its defaults."""
    num_micro_batches: int = 1
    """Into which TRL's batch is split, and whose losses are added up as gradient accumulation does."""
    is_clipping: bool = True
    """Some tokens must be clipped for the comparison to mean anything."""
    note: str = ""
    """What had to be chosen so that both are the same objective."""


TOKEN_MEAN = {"loss_type": "bnpo", "epsilon": 0.2}
BETA, K3 = {**TOKEN_MEAN, "beta": 0.3}, {"kl_coefficient": 0.3, "kl_estimator": "k3"}
NO_CLIP: dict[str, Any] = {"is_clipping": False}
SUPPLIED = "the ratio old policy / engine is supplied, since TRL computes it while it generates; its use is TRL's"
DELTA = "the same for delta above 1 + epsilon_high, as TRL recommends"
ONE_MICRO_BATCH = "bnpo divides by the tokens of a micro-batch: one micro-batch"


def corrected(correction: str, mode: str, low: float, high: float) -> Case:
    """Return GRPO with weights for the difference between trainer and engine."""
    bounds = {"vllm_importance_sampling_clip_max": high}
    if mode.endswith("mask"):
        bounds["vllm_importance_sampling_clip_min"] = low
    return Case(
        preset="grpo",
        ours={"correction": correction, "correction_low": low, "correction_high": high},
        trl={**TOKEN_MEAN, "use_vllm": True, "vllm_importance_sampling_mode": mode, **bounds},
        note=SUPPLIED,
    )


CASES: dict[str, Case] = {
    "grpo at ratio 1": Case(preset="grpo", ours={"old_logprobs": "current"}, trl=TOKEN_MEAN, **NO_CLIP),
    "grpo, token mean": Case(preset="grpo", trl=TOKEN_MEAN, note=ONE_MICRO_BATCH),
    "grpo, token mean of three micro-batches": Case(
        preset="grpo", trl={"loss_type": "dapo", "epsilon": 0.2}, num_micro_batches=3
    ),
    "grpo, sequence mean": Case(
        preset="grpo",
        ours={"reduction": "sequence_mean"},
        trl={"loss_type": "grpo", "epsilon": 0.2},
        num_micro_batches=2,
        note="no sequence without loss tokens, which TRL counts as a sequence and we do not",
    ),
    "dr_grpo": Case(
        preset="dr_grpo",
        ours={"max_tokens_divisor": MAX_LENGTH},
        trl={"loss_type": "dr_grpo", "epsilon": 0.2, "max_completion_length": MAX_LENGTH},
        num_micro_batches=2,
        note="max_tokens_divisor is TRL's max_completion_length",
    ),
    "dapo": Case(preset="dapo", trl={"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28}, num_micro_batches=2),
    "gspo": Case(
        preset="gspo",
        trl={"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
        num_micro_batches=2,
    ),
    "cispo": Case(
        preset="cispo",
        trl={"loss_type": "cispo", "epsilon_high": 5.0},
        num_micro_batches=2,
        note="TRL's epsilon_high is the largest ratio, 1 + clip_high, and there is no smallest: ratios stay above 0.01",
    ),
    # TRL rounds temperatures to fp32; 1.25 stays what it is.
    "sapo": Case(
        preset="sapo", ours={"tau_negative": 1.25}, trl={"loss_type": "sapo", "sapo_temperature_neg": 1.25}, **NO_CLIP
    ),
    "grpo, dual clip": Case(preset="grpo", ours={"dual_clip": 1.5}, trl={**TOKEN_MEAN, "delta": 1.5}, note=DELTA),
    "grpo, k3": Case(preset="grpo", ours=K3, trl={**BETA, "use_bias_correction_kl": False}),
    "grpo, k3 importance weighted": Case(
        preset="grpo", ours={**K3, "kl_importance_weighted": True}, trl={**BETA, "use_bias_correction_kl": True}
    ),
    "grpo, entropy bonus": Case(
        preset="grpo",
        ours={"entropy_coefficient": 0.2},
        trl={**TOKEN_MEAN, "entropy_coef": 0.2},
        note="TRL's bonus is a token mean with every loss type, ours has the loss's reduction: token mean for both",
    ),
    "grpo, token_tis": corrected("token_tis", "token_truncate", 0.5, 2.0),
    "grpo, sequence_tis": corrected("sequence_tis", "sequence_truncate", 0.5, 2.0),
    "grpo, icepop": corrected("icepop", "token_mask", 0.5, 2.0),
    "grpo, product_mask": corrected("product_mask", "sequence_mask", 0.1, 5.0),
}
LEFT_OUT = {
    "advantages": "given to both: TRL adds 1e-4 to the deviation, we add 1e-6",
    "correction with KL": "TRL does not weigh the KL term with the correction, we do",
    "rloo, reinforce_pp, maxrl, clip_cov, kl_cov, prompt_mean, sft": "not in TRL's GRPO trainer",
    "kto": "in trl_kto_agreement.py",
    "vespo, luspo, top_entropy_quantile, off_policy_mask_threshold": "not in ours",
}


# TRL's side

COPIED = (
    *("loss_type", "beta", "importance_sampling_level", "top_entropy_quantile", "off_policy_mask_threshold"),
    *("use_vllm", "vllm_importance_sampling_correction", "max_completion_length"),
    *("entropy_coef", "use_adaptive_entropy"),
)


def trl_trainer(case: Case, folder: str) -> Any:
    """Return a GRPOTrainer without a model: what `_compute_loss` reads, set as its constructor does."""
    from trl import GRPOConfig, GRPOTrainer

    arguments = GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        report_to=[],
        per_device_train_batch_size=NUM_SEQUENCES // case.num_micro_batches,
        gradient_accumulation_steps=case.num_micro_batches,
        num_generations=2,
        **case.trl,
    )
    trainer = GRPOTrainer.__new__(GRPOTrainer)
    trainer.args = arguments
    for name in COPIED:
        setattr(trainer, name, getattr(arguments, name))
    trainer.epsilon_low = arguments.epsilon
    trainer.epsilon_high = arguments.epsilon if arguments.epsilon_high is None else arguments.epsilon_high
    trainer._entropy_bonus_enabled = arguments.entropy_coef != 0.0
    trainer.aux_loss_enabled = False
    trainer.current_gradient_accumulation_steps = case.num_micro_batches
    trainer.model = SimpleNamespace(training=True)
    trainer._metrics = defaultdict(lambda: defaultdict(list))
    trainer.accelerator = SimpleNamespace(
        num_processes=1, sync_gradients=True, gather=lambda x: x, reduce=lambda x, reduction: x
    )
    return trainer


def engine_weights(batch: Batch, arguments: Any) -> Tensor:
    """Return min(ratio, high), or the ratio where it is within the bounds, of tokens or of whole sequences."""
    mode = arguments.vllm_importance_sampling_mode
    low, high = arguments.vllm_importance_sampling_clip_min, arguments.vllm_importance_sampling_clip_max
    log_ratio = (batch.old - batch.rollout) * batch.mask
    ratio = (log_ratio.sum(-1, keepdim=True) if mode.startswith("sequence") else log_ratio).exp()
    if mode.endswith("truncate"):
        return ratio.clamp(max=high)
    return ratio * ((ratio >= low) & (ratio <= high))


def trl_loss(case: Case, batch: Batch, folder: str) -> Tensor:
    """Return TRL's loss, added up over its micro-batches."""
    trainer = trl_trainer(case, folder)
    everything: dict[str, Tensor] = {
        "prompt_ids": torch.zeros(NUM_SEQUENCES, NUM_PROMPT_TOKENS, dtype=torch.long),
        "prompt_mask": torch.ones(NUM_SEQUENCES, NUM_PROMPT_TOKENS, dtype=torch.long),
        "completion_ids": torch.zeros(NUM_SEQUENCES, MAX_LENGTH, dtype=torch.long),
        "completion_mask": batch.completion_mask,
        "tool_mask": batch.tool_mask,
        "advantages": batch.advantages,
        "ref_per_token_logps": batch.ref,
        "sampling_per_token_logps": batch.rollout,
    }
    if case.ours.get("old_logprobs") != "current":
        everything["old_per_token_logps"] = batch.old
    if trainer.use_vllm:
        everything["importance_sampling_ratio"] = engine_weights(batch, trainer.args)
    size = NUM_SEQUENCES // case.num_micro_batches
    losses = []
    for start in range(0, NUM_SEQUENCES, size):
        part = slice(start, start + size)
        said = batch.logprobs[part], batch.entropies[part], None
        trainer._get_per_token_logps_and_entropies = lambda *_, said=said, **__: said
        inputs = {name: values[part] for name, values in everything.items()}
        inputs["num_items_in_batch"] = batch.mask.sum()
        losses.append(trainer._compute_loss(trainer.model, inputs))
    return torch.stack(losses).sum()


# Our side


def our_config(case: Case) -> AlgorithmConfig:
    """Return the preset with the case's changes."""
    preset = load_config([f"algorithm={case.preset}"]).algorithm
    return AlgorithmConfig(**(asdict(preset) | {"old_logprobs": "recompute"} | case.ours))


def our_loss(config: AlgorithmConfig, batch: Batch) -> tuple[Tensor, dict[str, float]]:
    """Return our loss, added up over two ranks and their micro-batches, and its metrics."""
    samples = our_samples(batch)
    weights = REDUCTIONS[config.reduction](
        [sample.num_loss_tokens for sample in samples],
        [sample.rollout_id for sample in samples],
        [sample.group_id for sample in samples],
        max_tokens_divisor=config.max_tokens_divisor,
    )
    grid = pack(samples, weights.token_weights, num_ranks=2, token_budget=64)
    micro_batches = [micro_batch for row in grid for micro_batch in row]
    constants = StepConstants(
        denominator=weights.denominator,
        kl_coefficient=config.kl_coefficient,
        entropy_coefficient=config.entropy_coefficient,
    )
    per_token = torch.tensor(weights.token_weights, dtype=torch.float64)[:, None].expand(-1, MAX_LENGTH)
    found = []
    for micro_batch in micro_batches:
        rows = [int(name) for name in micro_batch.sample_ids]
        micro_batch.advantages = micro_batch.advantages.double()
        micro_batch.rollout_logprobs = micro_batch.rollout_logprobs.double()
        micro_batch.token_weights = packed(per_token, rows, batch) * micro_batch.loss_mask
        micro_batch.old_logprobs = packed(batch.old, rows, batch)
        micro_batch.ref_logprobs = packed(batch.ref, rows, batch)
        logprobs, entropies = packed(batch.logprobs, rows, batch), packed(batch.entropies, rows, batch)
        found.append(micro_batch_loss(logprobs, entropies, micro_batch, config, constants))
    total = torch.stack([loss.numerator for loss in found]).sum() / weights.denominator
    sums, peaks = torch.stack([loss.sums for loss in found]), torch.stack([loss.peaks for loss in found])
    return total, named_metrics(sums.sum(0), peaks.amax(0), weights.denominator)


def compare(name: str, case: Case, folder: str) -> dict[str, Any]:
    """Return the largest differences over all seeds, and what shows that something was compared."""
    config = our_config(case)
    losses, gradients, clipped = [], [], []
    for seed in SEEDS:
        batch = random_batch(seed, name)
        leaves = (batch.logprobs, batch.entropies)
        found, metrics = our_loss(config, batch)
        expected = trl_loss(case, batch, folder)
        ours = torch.cat(torch.autograd.grad(found, leaves, materialize_grads=True))
        theirs = torch.cat(torch.autograd.grad(expected, leaves, materialize_grads=True))
        losses.append(relative_difference(found.detach(), expected.detach()))
        gradients.append(relative_difference(ours, theirs))
        clipped.append(metrics["loss/clip_fraction"])
    is_told = min(clipped) > 0 and max(clipped) < 1 if case.is_clipping else max(clipped) == 0
    return {
        "preset": case.preset,
        "ours": {"old_logprobs": "recompute"} | case.ours,
        "trl": case.trl | {"micro_batches": case.num_micro_batches},
        "loss_difference": max(losses),
        "gradient_difference": max(gradients),
        "clip_fraction": sum(clipped) / len(clipped),
        "passed": max(*losses, *gradients) <= TOLERANCE and is_told,
    } | ({"note": case.note} if case.note else {})


def main() -> int:
    """Compare all cases and print the JSON."""
    return report(lambda folder: {name: compare(name, case, folder) for name, case in CASES.items()}, left_out=LEFT_OUT)


if __name__ == "__main__":
    sys.exit(main())

"""What the batch as a whole does to its advantages; nothing of it depends on packing."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from policy_ranks import make_grid, make_samples
from torch import Tensor

from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.batching.packing import attach_logprobs, unpack_per_sample
from skyrl_nat.batching.shaping import shape_advantages
from skyrl_nat.config.algorithm import AlgorithmConfig
from skyrl_nat.errors import DataError
from skyrl_nat.types import TrainingSample


def flat(grid: list[list[MicroBatch]]) -> list[MicroBatch]:
    return [micro_batch for row in grid for micro_batch in row]


def shaped(settings: dict[str, Any], **layout: int) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Return advantages per sample after shaping, and the metrics."""
    micro_batches = flat(make_grid(make_samples(), **layout)[0])
    # A log-prob that is a function of the token, so that it does not depend on the layout.
    for name, scale in (("old_logprobs", 0.01), ("ref_logprobs", 0.013)):
        values = [-scale * m.token_ids.float() for m in micro_batches]
        attach_logprobs(micro_batches, values, name)  # type: ignore[arg-type]
    metrics = shape_advantages(micro_batches, AlgorithmConfig(**settings), kl_coefficient=0.5, seed=3)
    fields = [m.selected.float() if "cov" in str(settings.get("policy_loss")) else m.advantages for m in micro_batches]
    return unpack_per_sample(micro_batches, fields), metrics


KL_IN_REWARD = {"kl_in_reward": True, "kl_coefficient": 0.5, "kl_estimator": "k1", "old_logprobs": "recompute"}
SETTINGS = [
    KL_IN_REWARD,
    {"whiten_advantages": True},
    KL_IN_REWARD | {"whiten_advantages": True},
    {"policy_loss": "kl_cov", "covariance_share": 0.1},
    {"policy_loss": "clip_cov", "covariance_share": 0.1, "covariance_low": -5.0},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_packing_and_ranks_leave_no_trace(settings: dict[str, Any]) -> None:
    """Row 22: padding, order and number of micro-batches change nothing."""
    expected, metrics = shaped(settings)
    for layout in ({"budget": 200}, {"budget": 41}, {"num_ranks": 3}):
        found, other = shaped(settings, **layout)
        assert other == pytest.approx(metrics)
        for name, values in expected.items():
            assert torch.allclose(found[name], values, atol=1e-6), (name, layout)


def test_kl_still_to_come_is_taken_from_every_token() -> None:
    found, metrics = shaped(KL_IN_REWARD)
    total, count = 0.0, 0
    for sample in make_samples():
        kl = [0.003 * token if kept else 0.0 for token, kept in zip(sample.token_ids, sample.loss_mask, strict=True)]
        expected = [
            a - 0.5 * sum(kl[i:]) if kept else 0.0
            for i, (a, kept) in enumerate(zip(sample.advantages, sample.loss_mask, strict=True))
        ]
        assert found[sample.sample_id].tolist() == pytest.approx(expected, abs=1e-4)
        total, count = total + sum(kl), count + sample.num_loss_tokens
    assert metrics["reward/kl"] == pytest.approx(total / count, rel=1e-5)


def test_whitening_is_over_all_loss_tokens_of_the_batch() -> None:
    found, _ = shaped({"whiten_advantages": True})
    masks = {sample.sample_id: torch.tensor(sample.loss_mask) for sample in make_samples()}
    values = torch.cat([found[name][mask] for name, mask in masks.items()]).double()
    assert float(values.mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(values.std()) == pytest.approx(1.0, abs=1e-5)
    assert all(not found[name][~mask].any() for name, mask in masks.items())


def test_selected_tokens_are_loss_tokens_of_the_asked_share() -> None:
    found, metrics = shaped({"policy_loss": "kl_cov", "covariance_share": 0.1})
    samples = make_samples()
    num_tokens = sum(sample.num_loss_tokens for sample in samples)
    assert sum(int(values.sum()) for values in found.values()) == num_tokens // 10
    for sample in samples:
        assert not found[sample.sample_id][~torch.tensor(sample.loss_mask)].any()
    assert metrics["batch/covariance"] != 0.0


def test_a_penalty_without_logprobs_is_refused() -> None:
    micro_batches = flat(make_grid(make_samples())[0])
    with pytest.raises(DataError, match="log-probs of policy and reference"):
        shape_advantages(micro_batches, AlgorithmConfig(**KL_IN_REWARD), kl_coefficient=0.5, seed=0)


def sample_of(name: str, mask: list[int]) -> TrainingSample:
    return replace(
        make_samples()[0],
        sample_id=name,
        rollout_id="r",
        token_ids=[3] * len(mask),
        loss_mask=[bool(bit) for bit in mask],
        rollout_logprobs=[-1.0] * len(mask),
        advantages=[0.0] * len(mask),
    )


@pytest.mark.parametrize(
    "samples",
    [
        [sample_of("r", [0, 1, 1, 0, 1, 1])],
        [sample_of("r#0", [0, 1, 1]), sample_of("r#1", [0, 0, 0, 1, 1])],
        [sample_of("r#1", [0, 0, 0, 1, 1]), sample_of("r#0", [0, 1, 1])],
    ],
)
def test_kl_still_to_come_crosses_from_one_segment_into_the_next(samples: list[TrainingSample]) -> None:
    """GM-13: KL 0.25 a token, coefficient 0.5: four tokens have 4, 3, 2 and 1 of it to come, however they are cut."""
    micro_batches = flat(make_grid(samples)[0])
    attach_logprobs(micro_batches, [torch.full((m.num_tokens,), -1.0) for m in micro_batches], "old_logprobs")
    attach_logprobs(micro_batches, [torch.full((m.num_tokens,), -1.25) for m in micro_batches], "ref_logprobs")
    shape_advantages(micro_batches, AlgorithmConfig(**KL_IN_REWARD), kl_coefficient=0.5, seed=0)
    found = unpack_per_sample(micro_batches, [m.advantages for m in micro_batches])
    values = [value for name in sorted(found) for value in found[name].tolist() if value]
    assert values == pytest.approx([-0.5, -0.375, -0.25, -0.125])

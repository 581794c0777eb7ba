"""Columns of what training said of every token."""

import torch

from skyrl_nat.batching.packing import build_micro_batch, filler_micro_batch
from skyrl_nat.batching.trained import trained_columns
from skyrl_nat.types import TrainingSample


def sample(name: str, mask: str, advantage: float) -> TrainingSample:
    bits = [bit == "1" for bit in mask]
    return TrainingSample(
        sample_id=name,
        rollout_id=name,
        group_id="g",
        token_ids=list(range(len(bits))),
        loss_mask=bits,
        rollout_logprobs=[-1.0] * len(bits),
        advantages=[advantage if bit else 0.0 for bit in bits],
        oldest_version=0,
    )


def test_only_loss_tokens_are_kept_in_the_order_of_their_samples():
    packed = build_micro_batch([sample("a", "0110", 1.0), sample("b#1", "00011", -2.0)], [1.0, 1.0])
    scored = torch.arange(packed.num_tokens, dtype=torch.bfloat16)
    clipped = torch.arange(packed.num_tokens) % 2 == 0
    columns = trained_columns([(packed, (scored, clipped))])
    assert columns["sample_ids"].tolist() == ["a", "b#1"]
    assert columns["sizes"].tolist() == [2, 2]
    assert columns["logprobs"].tolist() == [1.0, 2.0, 7.0, 8.0] and columns["logprobs"].dtype == "float32"
    assert columns["advantages"].tolist() == [1.0, 1.0, -2.0, -2.0]
    assert columns["clipped"].tolist() == [False, True, False, True]


def test_fillers_are_left_out_and_nothing_trained_is_empty():
    filler = filler_micro_batch()
    columns = trained_columns([(filler, (torch.zeros(2), torch.zeros(2, dtype=torch.bool)))])
    assert {name: values.size for name, values in columns.items()} == dict.fromkeys(columns, 0)

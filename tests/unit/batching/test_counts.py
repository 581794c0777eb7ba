"""What packing saved, counted by hand."""

from skyrl_nat.batching.counts import pack_metrics
from skyrl_nat.batching.packing import build_micro_batch, filler_micro_batch
from skyrl_nat.types import TrainingSample


def sample(name: str, tokens: list[int]) -> TrainingSample:
    return TrainingSample(
        sample_id=name,
        rollout_id=name,
        group_id="g",
        token_ids=tokens,
        loss_mask=[False] + [True] * (len(tokens) - 1),
        rollout_logprobs=[0.0] * len(tokens),
        advantages=[0.0] * len(tokens),
        oldest_version=0,
    )


def test_shared_beginnings_and_fillers_are_told_apart() -> None:
    prompt = list(range(20))
    micro_batch = build_micro_batch([sample("a", [*prompt, 1, 2, 3, 4]), sample("b", [*prompt, 9, 8])], [1.0, 1.0])
    found = pack_metrics([micro_batch, filler_micro_batch()])
    assert found == {
        "pack/num_tokens": 46.0,
        "pack/num_computed_tokens": 26.0,  # the second prompt is not computed again
        "pack/num_filler_tokens": 2.0,
        "pack/num_attention_pairs": (24**2 + 22**2 - 20**2) / 2,
        "pack/pad_share": 2 / 28,
        "pack/shared_prefix_share": 20 / 46,
    }


def test_ranks_that_share_a_micro_batch_fill_it_up_to_equal_parts() -> None:
    micro_batches = [build_micro_batch([sample("a", [1] * length)], [1.0]) for length in (7, 8, 9)]
    found = pack_metrics(micro_batches, num_sharing=4)
    assert (found["pack/num_computed_tokens"], found["pack/num_filler_tokens"]) == (24.0, 1.0 + 0.0 + 3.0)


def test_a_batch_of_nothing_has_no_shares() -> None:
    assert set(pack_metrics([]).values()) == {0.0}

"""What packing cost and saved: tokens that are computed, shared and filled in."""

from collections.abc import Iterable

from skyrl_nat.batching.micro_batch import MicroBatch


def pack_metrics(micro_batches: Iterable[MicroBatch], *, num_sharing: int = 1) -> dict[str, float]:
    """Return the counts of a batch's micro-batches, fillers apart, and the shares of filling and sharing.

    Attention pairs are those of a computed token and one before it, half a square of a sequence's length; beginnings
    that are shared count once.

    Args:
        micro_batches: Of all rows of the grid, each once.
        num_sharing: Ranks that share one; each computes as many of its tokens, and so some are filled in.
    """
    num_tokens = num_computed = num_squares = num_filler = 0
    for micro_batch in micro_batches:
        if not micro_batch.sample_ids:
            num_filler += micro_batch.num_computed
            continue
        num_filler += -micro_batch.num_computed % num_sharing
        num_tokens += micro_batch.num_tokens
        num_computed += micro_batch.num_computed
        lengths = micro_batch.cu_seqlens.long().diff()
        shared = lengths - micro_batch.cu_computed.long().diff()
        num_squares += int((lengths**2 - shared**2).sum())
    return {
        "pack/num_tokens": float(num_tokens),
        "pack/num_computed_tokens": float(num_computed),
        "pack/num_filler_tokens": float(num_filler),
        "pack/num_attention_pairs": num_squares / 2,
        "pack/pad_share": num_filler / max(1, num_computed + num_filler),
        "pack/shared_prefix_share": (num_tokens - num_computed) / max(1, num_tokens),
    }

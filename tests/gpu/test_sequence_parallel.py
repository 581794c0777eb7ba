"""On two GPUs: ranks that share micro-batches over NCCL, in half precision, against one rank."""

from pathlib import Path

import pytest
import torch
from sequence_ranks import Case, Layout, run_sequence_ranks
from tiny_model import make_tiny_model

from skyrl_nat.config.model import Dtype

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
HALF = {"compute_dtype": Dtype.bfloat16, "activation_checkpointing": True}


def test_two_gpus_that_share_micro_batches_train_like_one(tmp_path: Path) -> None:
    """Through variable-length attention with equal beginnings; both round to bfloat16, perhaps in another order."""
    model = make_tiny_model(tmp_path / "model", hidden_size=256)
    cases = {"grpo": Case(model=HALF), "compiled": Case(model=HALF | {"compile": True}, budget=200)}
    layouts = [Layout(model=model, num_ranks=size, size=size, device="cuda") for size in (1, 2)]
    (one,), (first, second) = [run_sequence_ranks(layout, cases, tmp_path / str(layout.size)) for layout in layouts]
    for name in cases:
        assert first[name]["metrics"] == second[name]["metrics"]
        for rank in (first, second):
            for key, values in one[name]["logprobs"].items():
                assert (rank[name]["logprobs"][key] - values).abs().mean() < 0.1, (name, key)
        found, expected = first[name]["metrics"][0], one[name]["metrics"][0]
        assert found["loss/ratio_mean"] == pytest.approx(1.0, abs=1e-3)
        assert found["loss/num_tokens"] == expected["loss/num_tokens"]
        for key in ("loss/grad_norm", "loss/token_entropy"):
            assert found[key] == pytest.approx(expected[key], rel=0.05), (name, key)

"""Checksums are computed where weights lie, and are the same there as on the CPU."""

import time

import pytest
import torch

from skyrl_nat.weight_sync.base import tensor_digest

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [1, 1001, 10_000_000])
def test_both_devices_agree(dtype: torch.dtype, length: int) -> None:
    tensor = torch.randn(length, generator=torch.Generator().manual_seed(length)).to(dtype)
    assert tensor_digest(tensor.cuda()) == tensor_digest(tensor)


def test_a_gib_takes_less_than_a_tenth_of_a_second() -> None:
    tensor = torch.randn(2**29, device="cuda", dtype=torch.bfloat16)
    tensor_digest(tensor)
    begun = time.perf_counter()
    tensor_digest(tensor)
    assert time.perf_counter() - begun < 0.1

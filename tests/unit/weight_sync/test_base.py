"""A checksum notices whatever is not the same bits in the same order."""

import pytest
import torch

from skyrl_nat.weight_sync import base
from skyrl_nat.weight_sync.base import tensor_digest

LENGTHS = (0, 1, 3, 4, 1000, 4097)


def random(length: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8])
def test_every_bit_and_every_place_counts(dtype: torch.dtype) -> None:
    tensor = (random(1000, torch.float32) * 50).to(dtype)
    digests = {tensor_digest(tensor)}
    raw = tensor.view(torch.uint8)
    for byte in (0, 1, len(raw) // 2, len(raw) - 1):
        for bit in range(8):
            changed = raw.clone()
            changed[byte] ^= 1 << bit
            digests.add(tensor_digest(changed.view(dtype)))
    assert len(digests) == 1 + 4 * 8
    swapped = tensor.clone()
    swapped[[10, 700]] = tensor[[700, 10]]
    assert (tensor[10] == tensor[700]) or tensor_digest(swapped) not in digests
    assert tensor_digest(torch.cat([tensor[1:], tensor[:1]])) not in digests


def test_zeros_of_other_signs_and_other_nans_are_not_equal() -> None:
    zero = torch.zeros(8)
    assert tensor_digest(zero) != tensor_digest(-zero)
    assert tensor_digest(torch.zeros(8)) != tensor_digest(torch.zeros(9))
    nan = torch.full((2,), torch.nan)
    other = nan.view(torch.int32).add(1).view(torch.float32)
    assert tensor_digest(nan) != tensor_digest(other)


@pytest.mark.parametrize("length", LENGTHS)
def test_neither_layout_nor_the_size_of_a_part_matters(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        tensor = random(2 * length, dtype)
        whole = tensor_digest(tensor.reshape(2, length))
        assert whole == tensor_digest(tensor)
        assert tensor_digest(tensor.reshape(2, length).t().contiguous().t()) == whole
        with monkeypatch.context() as patch:
            patch.setattr(base, "WORDS_AT_ONCE", 7)
            assert tensor_digest(tensor) == whole


def test_a_part_of_a_buffer_has_the_checksum_of_its_copy() -> None:
    """Also where it does not begin at a whole word."""
    buffer = random(64, torch.bfloat16)
    for start in range(4):
        part = buffer[start : start + 32]
        assert tensor_digest(part) == tensor_digest(part.clone())


def test_random_tensors_do_not_collide() -> None:
    assert len({tensor_digest(random(6, torch.bfloat16, seed)) for seed in range(3000)}) == 3000

"""How tensors lie in buffers."""

import torch

from skyrl_nat.weight_sync.base import TensorSpec
from skyrl_nat.weight_sync.buckets import plan_buckets


def spec(name: str, *shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, shape=shape, dtype=dtype)


def test_tensors_share_a_bucket_until_it_is_full_and_begin_at_multiples_of_256_bytes() -> None:
    manifest = [spec("a", 3), spec("b", 64), spec("c", 65), spec("d", 1, dtype="bfloat16")]
    first, second = plan_buckets(manifest, 1024)
    assert [s.name for s in first.specs] == ["a", "b", "c"]
    assert (first.offsets, first.num_bytes) == ((0, 256, 512), 1024)  # c has 260 bytes
    assert ([s.name for s in second.specs], second.offsets, second.num_bytes) == (["d"], (0,), 256)


def test_a_tensor_larger_than_a_bucket_has_one_to_itself() -> None:
    buckets = plan_buckets([spec("a", 2), spec("large", 1000), spec("b", 2)], 512)
    assert [[s.name for s in bucket.specs] for bucket in buckets] == [["a"], ["large"], ["b"]]
    assert buckets[1].num_bytes == 4096


def test_views_are_the_tensors_in_their_formats() -> None:
    manifest = [spec("a", 2, 2), spec("b", 3, dtype="bfloat16"), spec("scalar")]
    [bucket] = plan_buckets(manifest, 4096)
    buffer = torch.zeros(bucket.num_bytes, dtype=torch.uint8)
    values = {
        "a": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "b": torch.tensor([1.5, -2.0, 8.0]),
        "scalar": torch.tensor(7.0),
    }
    for each, view in bucket.views(buffer):
        view.copy_(values[each.name])
    for each, view in bucket.views(buffer.clone()):
        assert view.shape == each.shape
        assert str(view.dtype) == f"torch.{each.dtype}"
        assert torch.equal(view.float(), values[each.name])


def test_nothing_to_send_needs_no_bucket() -> None:
    assert plan_buckets([], 512) == []

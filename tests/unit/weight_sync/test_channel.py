"""The weight channel between threads of one process, by broadcast and by shared memory."""

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from skyrl_nat.errors import WeightSyncError
from skyrl_nat.weight_sync.channel import WeightReceiver, WeightSender
from skyrl_nat.weight_sync.manifest import spec_of

TIMEOUT_S = 15.0
"""Torch's store asks for the names of who connects; where the answer is lost, that takes 5 s."""
WEIGHTS = {
    "a": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "b": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "c": torch.tensor(3.0),
}
MANIFEST = [spec_of(name, tensor) for name, tensor in WEIGHTS.items()]


class Channel:
    """One sender and two receivers, all joined."""

    def __init__(self, backend: str) -> None:
        self.threads = ThreadPoolExecutor(4)
        info = {
            "backend": backend,
            "device": "cpu",
            "address": "127.0.0.1",
            "group": uuid.uuid4().hex,
            "world_size": 3,
            "timeout_s": TIMEOUT_S,
            "bucket_bytes": 1 << 21,
        }
        self.sender = WeightSender(info)
        joined = self.threads.submit(self.sender.join)
        there = {**info, "port": self.sender.port}
        receivers = [self.threads.submit(WeightReceiver, {**there, "rank": rank}) for rank in (1, 2)]
        self.receivers = [receiver.result(TIMEOUT_S) for receiver in receivers]
        joined.result(TIMEOUT_S)

    def send(self, tensors: dict[str, Tensor]) -> "Future[None]":
        return self.threads.submit(self.sender.send, iter(tensors.items()))

    def receive(self, index: int, take: Callable[[str, Tensor], None], **kwargs: Any) -> "Future[None]":
        return self.threads.submit(self.receivers[index].receive, MANIFEST, take, **kwargs)


@pytest.fixture(params=["gloo", "ipc"])
def channel(request: pytest.FixtureRequest) -> Iterator[Channel]:
    channel = Channel(request.param)
    yield channel
    channel.threads.shutdown()
    channel.sender.close()
    for receiver in channel.receivers:
        receiver.close()


def ignore(name: str, tensor: Tensor) -> None:
    """Take nothing."""


def test_two_pushes_bring_every_tensor_bit_for_bit_to_every_receiver(channel: Channel) -> None:
    for shift in (0, 1):
        weights = {name: tensor + shift for name, tensor in WEIGHTS.items()}
        got: list[dict[str, Tensor]] = [{}, {}]
        calls = [channel.receive(i, got[i].__setitem__) for i in (0, 1)]
        channel.send(weights).result(TIMEOUT_S)
        for call in calls:
            call.result(TIMEOUT_S)
        for received in got:
            assert list(received) == list(weights)
            assert all(torch.equal(received[n], weights[n]) for n in weights)


def test_one_refusal_stops_the_push_before_any_tensor_and_names_the_reason(
    channel: Channel,
) -> None:
    taken: list[str] = []
    calls = [
        channel.receive(0, ignore, refusal="x.weight: unknown"),
        channel.receive(1, lambda name, _: taken.append(name)),
    ]
    with pytest.raises(WeightSyncError, match=r"x\.weight: unknown"):
        channel.send(WEIGHTS).result(TIMEOUT_S)
    channel.sender.close()
    for call in calls:
        with pytest.raises(WeightSyncError):
            call.result(TIMEOUT_S)
    assert taken == []


def test_the_sender_reads_its_tensors_to_the_end_after_a_failure(channel: Channel) -> None:
    read: list[str] = []

    def tensors() -> Iterator[tuple[str, Tensor]]:
        for name, tensor in WEIGHTS.items():
            read.append(name)
            yield name, tensor

    channel.receive(0, ignore, refusal="no")
    channel.receive(1, ignore, refusal="no")
    with pytest.raises(WeightSyncError):
        channel.sender.send(tensors())
    assert read == ["a", "b", "c"]


def test_a_tensor_that_is_not_what_was_announced_is_never_sent(channel: Channel) -> None:
    calls = [channel.receive(i, ignore) for i in (0, 1)]
    with pytest.raises(WeightSyncError, match="must be sent as announced"):
        channel.send({**WEIGHTS, "b": torch.zeros(7)}).result(TIMEOUT_S)
    for call in calls:
        with pytest.raises(WeightSyncError, match="must arrive"):
            call.result(TIMEOUT_S)


def test_fewer_tensors_than_announced_are_an_error_on_both_sides(channel: Channel) -> None:
    """Row 57, WS-02."""
    calls = [channel.receive(i, ignore) for i in (0, 1)]
    with pytest.raises(WeightSyncError, match="All 3 announced tensors must be sent, found 1"):
        channel.send({"a": WEIGHTS["a"]}).result(TIMEOUT_S)
    for call in calls:
        with pytest.raises(WeightSyncError):
            call.result(TIMEOUT_S)


def test_a_receiver_that_fails_in_the_middle_frees_everybody_before_the_deadline(
    channel: Channel,
) -> None:
    """WS-08."""

    def fail(name: str, tensor: Tensor) -> None:
        raise OSError("no space")

    many = {f"t{i}": torch.zeros(1 << 20) for i in range(8)}
    manifest = [spec_of(name, tensor) for name, tensor in many.items()]
    began = threading.Event()
    failing = channel.threads.submit(channel.receivers[0].receive, manifest, fail)
    other = channel.threads.submit(channel.receivers[1].receive, manifest, ignore)
    began.set()
    with pytest.raises(WeightSyncError):
        channel.send(many).result(TIMEOUT_S + 5)
    with pytest.raises(WeightSyncError, match="OSError: no space"):
        failing.result(1)
    with pytest.raises(WeightSyncError):
        other.result(TIMEOUT_S + 5)


def test_a_channel_that_nobody_joins_is_given_up_at_its_deadline() -> None:
    info = {
        "backend": "gloo",
        "address": "127.0.0.1",
        "group": "lonely",
        "world_size": 2,
        "timeout_s": 0.5,
        "bucket_bytes": 1,
    }
    with pytest.raises(WeightSyncError, match="All 2 ends must join"):
        WeightSender(info).join()

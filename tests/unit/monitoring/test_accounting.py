"""Shares and rates worked out by hand; whatever is reported, a GPU's parts are the whole step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyrl_nat.monitoring.accounting import (
    PARTS,
    GpuTime,
    StepWork,
    Window,
    gpu_metrics,
    split_time,
    union_seconds,
    work_metrics,
)
from skyrl_nat.monitoring.cards import CARDS, Card, find_card
from skyrl_nat.monitoring.usage import Activity, ActivityLog, Interval

TRAIN, PUSH, OFFLOAD, ROLLOUT = Activity
WINDOW = Window(100.0, 110.0)
CARD = Card(bf16_flops=1000.0, memory_bytes=500.0, link_bytes=50.0)


def gpu(**seconds: float) -> GpuTime:
    busy = dict.fromkeys(PARTS, 0.0) | seconds
    return GpuTime(seconds=busy | {"idle": 10.0 - sum(busy.values())}, contended_s=0.0)


def test_a_colocated_gpu_is_split_by_hand() -> None:
    found = split_time(
        [
            Interval(ROLLOUT, 98.0, 103.0),  # began before the step
            Interval(OFFLOAD, 103.5, 104.0),
            Interval(TRAIN, 104.0, 107.0),
            Interval(PUSH, 107.5, 108.0),
            Interval(ROLLOUT, 109.0, 120.0),  # goes on after it
        ],
        WINDOW,
    )
    assert found.seconds == {"train": 3.0, "push": 0.5, "offload": 0.5, "rollout": 4.0, "idle": 2.0}
    assert found.contended_s == 0.0


def test_engines_on_one_gpu_are_busy_together_not_twice() -> None:
    found = split_time([Interval(ROLLOUT, 101, 104), Interval(ROLLOUT, 103, 106), Interval(ROLLOUT, 102, 103)], WINDOW)
    assert (found.seconds["rollout"], found.seconds["idle"], found.contended_s) == (5.0, 5.0, 0.0)


def test_what_two_activities_claim_counts_once_and_is_told() -> None:
    found = split_time([Interval(ROLLOUT, 100, 106), Interval(TRAIN, 104, 109)], WINDOW)
    assert (found.seconds["train"], found.seconds["rollout"], found.seconds["idle"]) == (5.0, 4.0, 1.0)
    assert found.contended_s == 2.0


def test_an_interval_that_a_clock_turned_round_is_nothing() -> None:
    assert split_time([Interval(TRAIN, 105, 103), Interval(PUSH, 90, 95)], WINDOW).seconds["idle"] == 10.0


moments = st.floats(0.0, 4e9, allow_nan=False)
intervals = st.builds(Interval, st.sampled_from(list(Activity)), moments, moments)


@given(st.lists(st.lists(intervals, max_size=8), min_size=1, max_size=4), moments, st.floats(1e-2, 1e5))
def test_the_parts_are_always_the_whole(gpus: list[list[Interval]], start: float, seconds: float) -> None:
    window = Window(start, start + seconds)
    metrics = gpu_metrics([split_time(each, window) for each in gpus], window)
    assert sum(metrics[f"gpu/{part}/share"] for part in PARTS) == pytest.approx(1.0, abs=1e-6)
    for number in range(len(gpus)):
        shares = [metrics[f"gpu/{number}/{part}/share"] for part in PARTS]
        assert sum(shares) == pytest.approx(1.0, abs=1e-6)
        assert min(shares) >= -1e-6


def test_shares_are_of_all_gpus_and_idle_seconds_of_one() -> None:
    engine_card, policy_card = gpu(rollout=8.0, push=1.0), gpu(train=3.0, push=1.0)
    metrics = gpu_metrics([policy_card, engine_card], WINDOW)
    assert metrics["gpu/rollout/share"] == 0.4
    assert metrics["gpu/train/share"] == 0.15
    assert metrics["gpu/push/share"] == 0.1
    assert metrics["gpu/idle/share"] == 0.35
    assert (metrics["gpu/0/idle/share"], metrics["gpu/1/idle/share"]) == (0.6, 0.1)
    assert (metrics["gpu/idle_s/mean"], metrics["gpu/idle_s/max"], metrics["gpu/count"]) == (3.5, 6.0, 2.0)


def work(**changes: float | None) -> StepWork:
    known = {
        "num_engine_tokens": 600,
        "num_trained_tokens": 400,
        "num_pushed_bytes": 10_000_000_000,
        "training_flops": 2400.0,
        "decode_bytes": 1000.0,
        "link_bytes_per_s": 20e9,
    }
    return StepWork(**{**known, **changes})  # type: ignore[arg-type]


def test_rates_are_worked_out_by_hand() -> None:
    gpus = [gpu(train=4.0), gpu(rollout=8.0)]
    assert work_metrics(work(), gpus, WINDOW, push_s=2.0, card=CARD) == {
        "throughput/engine_tokens_per_gpu_s": 30.0,
        "throughput/trained_tokens_per_gpu_s": 20.0,
        "push/gb_per_s": 5.0,
        "push/link_share": 0.25,
        "train/mfu": 0.6,
        "step/mfu": 0.12,
        "rollout/bandwidth_share": 0.25,
    }


def test_what_is_not_known_is_left_out() -> None:
    gpus = [gpu(train=4.0, rollout=4.0)]
    tokens = {"throughput/engine_tokens_per_gpu_s", "throughput/trained_tokens_per_gpu_s"}
    assert work_metrics(work(link_bytes_per_s=None), gpus, WINDOW, push_s=0.0, card=None).keys() == tokens
    unknown = work(training_flops=None, decode_bytes=None, link_bytes_per_s=None)
    assert work_metrics(unknown, gpus, WINDOW, push_s=1.0, card=CARD).keys() == tokens | {"push/gb_per_s"}
    idle = work_metrics(work(), [gpu()], WINDOW, push_s=1.0, card=CARD)
    assert "train/mfu" not in idle
    assert "rollout/bandwidth_share" not in idle


def test_a_push_lasts_as_long_as_any_card_takes_part() -> None:
    found = [Interval(PUSH, 99, 101), Interval(PUSH, 103, 105), Interval(PUSH, 104, 106), Interval(TRAIN, 100, 109)]
    assert union_seconds(found, PUSH, WINDOW) == 4.0


def test_only_one_known_kind_of_card_has_peaks() -> None:
    assert find_card(["NVIDIA H200"] * 2) is CARDS["NVIDIA H200"]
    assert find_card(["NVIDIA H200", "NVIDIA H100 80GB HBM3"]) is None
    assert find_card(["NVIDIA H200 MIG 1g.18gb"]) is None
    assert find_card([""]) is None
    assert find_card([]) is None


def test_a_log_notes_failures_too_and_forgets_what_was_taken() -> None:
    times = iter([1.0, 3.0, 3.0, 4.0, 6.0, 7.0])
    log = ActivityLog(now=lambda: next(times))
    with pytest.raises(ValueError, match="inside"), log.during(TRAIN):
        raise ValueError("inside")
    for _ in range(2):
        with log.during(TRAIN):
            pass
    assert log.take().intervals == [Interval(TRAIN, 1.0, 4.0), Interval(TRAIN, 6.0, 7.0)]
    assert log.take().intervals == []

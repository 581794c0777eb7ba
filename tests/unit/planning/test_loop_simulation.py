"""The loop over time: equal to a formula where nothing is uneven, never staler than allowed, the same from one seed."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyrl_nat.planning.roofline import DecodeStep
from skyrl_nat.planning.simulation import Failures, LoopResult, LoopShape, long_run, simulate

EVEN = LoopShape(
    tasks_per_step=4,
    rollouts_per_task=8,
    staleness=0,
    is_colocated=True,
    num_engines=2,
    num_sequences=64,
    decode=DecodeStep(fixed_s=0.01, sequence_s=0.001),
    mean_tokens=100,
    longest_tokens=1000,
    spread=0.0,
    train_s=3.0,
    push_s=0.5,
)
"""32 rollouts of 100 tokens on 2 engines: 16 on each, 100 steps of 0.026 s."""


def test_even_rollouts_take_rollout_train_and_push_one_after_the_other():
    found = simulate(EVEN, num_steps=5)
    assert found.step_s == pytest.approx([100 * 0.026 + 3.0 + 0.5] * 5)
    assert found.waited_s == pytest.approx([2.6] * 5)
    assert found.staleness == [0] * 5


def test_engines_with_less_room_play_in_waves():
    found = simulate(replace(EVEN, num_sequences=8), num_steps=3)
    assert found.waited_s == pytest.approx([2 * 100 * 0.018] * 3), "two waves of 8 on each engine"


def test_verdicts_queue_for_their_judges():
    found = simulate(replace(EVEN, verdict_s=0.7, num_judges=10, turn_s=0.2), num_steps=3)
    assert found.waited_s == pytest.approx([2.6 + 0.2 + 4 * 0.7] * 3), "32 verdicts on 10 judges are four rounds"


def test_one_step_ahead_hides_the_shorter_of_both():
    apart = replace(EVEN, is_colocated=False, staleness=1)
    slow_trainer = simulate(apart, num_steps=12)
    assert slow_trainer.step_s[-5:] == pytest.approx([3.5] * 5)
    assert slow_trainer.waited_s[-5:] == pytest.approx([0.0] * 5, abs=1e-6)


def test_batches_that_began_together_end_together():
    """The second one is there as soon as the first one is trained."""
    slow_rollouts = replace(EVEN, is_colocated=False, staleness=1, mean_tokens=400)
    found = simulate(slow_rollouts, num_steps=8)
    assert found.waited_s[1::2] == pytest.approx([0.0] * 4, abs=1e-6)
    # One batch is alone while the other is trained; then both share the engines to the end.
    assert found.waited_s[2::2] == pytest.approx([(400 - 3.0 / 0.026) * 0.042] * 3)
    assert found.mean_step_s < 400 * 0.026 + 3.5


def test_ahead_on_shared_cards_gains_only_what_fuller_engines_bring():
    found = simulate(replace(EVEN, staleness=1), num_steps=8)
    assert sum(found.step_s) == pytest.approx(8 * 3.5 + 4 * 100 * 0.042)


def test_a_longer_tail_takes_longer():
    means = [simulate(replace(EVEN, spread=spread), num_steps=20).mean_step_s for spread in (0.0, 0.5, 1.0)]
    assert means == sorted(means)
    assert means[2] > 1.3 * means[0]


shapes = st.builds(
    LoopShape,
    tasks_per_step=st.integers(1, 6),
    rollouts_per_task=st.integers(1, 8),
    staleness=st.integers(0, 3),
    is_colocated=st.booleans(),
    num_engines=st.integers(1, 4),
    num_sequences=st.integers(1, 16),
    decode=st.builds(DecodeStep, fixed_s=st.floats(1e-4, 0.1), sequence_s=st.floats(0, 0.01)),
    mean_tokens=st.floats(1, 500),
    longest_tokens=st.just(1000.0),
    spread=st.floats(0, 1.5),
    turn_s=st.floats(0, 2),
    num_judges=st.integers(1, 8),
    verdict_s=st.floats(0, 3),
    train_s=st.floats(0, 20),
    push_s=st.floats(0, 3),
)


@settings(max_examples=80)
@given(shapes, st.integers(0, 5))
def test_no_batch_is_staler_than_allowed_and_every_step_has_its_train_and_push(shape: LoopShape, seed: int):
    found = simulate(shape, num_steps=6, seed=seed)
    assert len(found.step_s) == len(found.staleness) == 6
    assert all(0 <= staleness <= shape.staleness for staleness in found.staleness)
    assert all(step >= shape.train_s + shape.push_s - 1e-6 for step in found.step_s)
    shortest = shape.decode.seconds(1)
    assert found.step_s[0] >= shortest + shape.train_s + shape.push_s + shape.verdict_s - 1e-6


@settings(max_examples=30)
@given(shapes, st.integers(0, 5))
def test_a_seed_gives_the_same_again(shape: LoopShape, seed: int):
    assert simulate(shape, num_steps=4, seed=seed) == simulate(shape, num_steps=4, seed=seed)


def test_another_seed_gives_another_run():
    uneven = replace(EVEN, spread=0.8)
    assert simulate(uneven, num_steps=4, seed=0).step_s != simulate(uneven, num_steps=4, seed=1).step_s


def test_without_failures_a_month_is_its_steps():
    loop = LoopResult(step_s=[20.0, 10.0, 10.0])
    found = long_run(loop, Failures(hours_per_gpu=1e12), num_gpus=8, hours=1.0)
    assert (found.num_failures, found.num_lost_steps) == (0, 0)
    assert found.num_kept_steps == 1 + (3600 - 20) // 10
    assert found.kept_step_s == pytest.approx(10, rel=0.01)


def test_failures_cost_repairs_and_the_steps_since_the_checkpoint():
    loop = LoopResult(step_s=[20.0, 10.0])
    failures = Failures(hours_per_gpu=100.0, repair_s=300.0, steps_per_checkpoint=20)
    found = long_run(loop, failures, num_gpus=100, hours=2000.0)
    assert found.num_failures == pytest.approx(2000 / (1 + 300 / 3600), rel=0.06), "one an hour of work"
    lost_each = found.num_lost_steps / found.num_failures
    assert lost_each == pytest.approx(9.5, rel=0.1), "half of what lies between two checkpoints"
    spent = found.num_kept_steps * 10 + found.num_lost_steps * 10 + found.num_failures * 300
    assert spent <= found.seconds <= spent + found.num_failures * 25


def test_more_gpus_fail_more_often():
    loop = LoopResult(step_s=[20.0, 10.0])
    kept = [
        long_run(loop, Failures(hours_per_gpu=1000.0), num_gpus=number, hours=1000.0).num_kept_steps
        for number in (1, 16, 256)
    ]
    assert kept == sorted(kept, reverse=True)

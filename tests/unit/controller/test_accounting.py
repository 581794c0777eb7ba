"""What the ranks and engines answered becomes the account of a step; times are chosen by hand."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skyrl_nat.cluster.placement import NodeResources, plan_placement
from skyrl_nat.config.load import load_config
from skyrl_nat.controller import accounting
from skyrl_nat.controller.accounting import StepAccountant
from skyrl_nat.monitoring.usage import Activity, Interval, Usage

SHAPE = {
    "model_type": "llama",
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 100,
}
H100 = "NVIDIA H100 80GB HBM3"
BATCH = {"batch/num_tokens": 300.0, "pack/num_computed_tokens": 200.0, "pack/num_attention_pairs": 50.0}
FORWARD = 2 * 1952 * 200 + 4 * 2 * 8 * 50
"""FLOPs of the batch: 1952 weights, two layers of width 8."""
GPU = (
    "cluster=h100x1",
    "engine=vllm_gpu",
    "weight_sync=ipc",
    "model.compute_dtype=bfloat16",
)


class Answers:
    """A topology whose processes answer what a test says."""

    def __init__(self, config: Any, *answers: dict[str, list[Usage]]) -> None:
        node = NodeResources(name="n", num_cpus=8, num_gpus=config.cluster.num_gpus_per_node)
        self.plan = plan_placement(config.cluster, [node], is_overlapped=config.trainer.staleness > 0)
        self._answers = iter(answers)

    async def usage(self) -> dict[str, list[Usage]]:
        return next(self._answers)


def train(start: float, end: float, card: str = H100) -> Usage:
    return Usage(intervals=[Interval(Activity.TRAIN, start, end)], card=card)


def engine(*spans: tuple[float, float], **counts: float) -> Usage:
    return Usage(intervals=[Interval(Activity.ROLLOUT, *span) for span in spans], **counts)  # type: ignore[arg-type]


NOTHING = {"policy": [train(0, 0)], "engine": [engine()]}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=100.0, set_by=0.0)
    times = SimpleNamespace(time=lambda: clock.now + clock.set_by, monotonic=lambda: clock.now - 77.0)
    monkeypatch.setattr(accounting, "time", times)
    return clock


def accountant(folder: Path, overrides: tuple[str, ...], *answers: dict[str, list[Usage]]) -> StepAccountant:
    (folder / "config.json").write_text(json.dumps(SHAPE))
    config = load_config(list(overrides))
    return StepAccountant(config, Answers(config, *answers), folder)  # type: ignore[arg-type]


def one_step(
    account: StepAccountant, clock: SimpleNamespace, until: float, *, num_pushed_bytes: int = 0, **batch: float
) -> dict[str, float]:
    async def step() -> dict[str, float]:
        await account.begin()
        clock.now = until
        if num_pushed_bytes:
            account.num_pushed_bytes = num_pushed_bytes
        return await account.end(BATCH | batch)

    return asyncio.run(step())


def test_a_step_on_an_h100_is_worked_out_by_hand(tmp_path: Path, clock: SimpleNamespace) -> None:
    answer = {
        "policy": [train(104.0, 106.0)],
        "engine": [
            engine(
                (100.0, 104.0), num_prompt_tokens=90, num_completion_tokens=80, num_context_tokens=1000, request_s=40.0
            )
        ],
    }
    found = one_step(accountant(tmp_path, GPU, NOTHING, answer), clock, 110.0)
    assert (found["gpu/train/share"], found["gpu/rollout/share"], found["gpu/idle/share"]) == (0.2, 0.4, 0.4)
    assert found["throughput/engine_tokens_per_gpu_s"] == 17.0
    assert found["throughput/trained_tokens_per_gpu_s"] == 30.0
    assert found["train/mfu"] == pytest.approx(3 * FORWARD / (2.0 * 989e12))
    assert found["step/mfu"] == pytest.approx(3 * FORWARD / (10.0 * 989e12))
    # Ten requests at once, so eight steps for 80 tokens; 16 numbers of keys and values a token; two bytes each.
    assert found["rollout/bandwidth_share"] == pytest.approx(2 * (1952 * 8 + 16 * 1000) / (4.0 * 3.35e12))


@pytest.mark.parametrize(
    ("overrides", "batch", "passes"),
    [
        ((), {}, 3),
        (("algorithm.kl_coefficient=0.1",), {}, 4),
        (("algorithm.old_logprobs=recompute",), {}, 4),
        (("model.lora.rank=4",), {}, 2),
        ((), {"loss/empty": 1.0}, 0),
    ],
)
def test_every_pass_over_the_batch_is_work(
    tmp_path: Path, clock: SimpleNamespace, overrides: tuple[str, ...], batch: dict[str, float], passes: int
) -> None:
    answer = {"policy": [train(104.0, 106.0)], "engine": [engine()]}
    found = one_step(accountant(tmp_path, (*GPU, *overrides), NOTHING, answer), clock, 110.0, **batch)
    assert found["train/mfu"] * 2.0 * 989e12 == pytest.approx(passes * FORWARD)


@pytest.mark.parametrize(
    ("overrides", "card", "missing"),
    [
        (GPU, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", {"train/mfu", "step/mfu", "rollout/bandwidth_share"}),
        ((), "", {"train/mfu", "step/mfu", "rollout/bandwidth_share"}),
        ((*GPU, "engine.num_speculative_tokens=3"), H100, {"rollout/bandwidth_share"}),
        ((*GPU, "+engine.extra={quantization: fp8}"), H100, {"rollout/bandwidth_share"}),
    ],
)
def test_a_figure_that_could_be_wrong_is_left_out(
    tmp_path: Path, clock: SimpleNamespace, overrides: tuple[str, ...], card: str, missing: set[str]
) -> None:
    busy = engine((100.0, 104.0), num_completion_tokens=8, num_context_tokens=9, request_s=4.0)
    answer = {"policy": [train(104.0, 106.0, card)], "engine": [busy]}
    found = one_step(accountant(tmp_path, overrides, NOTHING, answer), clock, 110.0)
    assert {"train/mfu", "step/mfu", "rollout/bandwidth_share"} - found.keys() == missing


def test_a_push_through_the_cards_memory_is_measured_against_half_of_it(tmp_path: Path, clock: SimpleNamespace) -> None:
    pushing = Usage(intervals=[Interval(Activity.PUSH, 106.0, 108.0)], card=H100)
    taking = Usage(intervals=[Interval(Activity.PUSH, 106.5, 108.5)])
    account = accountant(tmp_path, GPU, NOTHING, {"policy": [pushing], "engine": [taking]})
    found = one_step(account, clock, 110.0, num_pushed_bytes=5 * 10**9)
    assert found["gpu/push/share"] == 0.25
    assert found["push/gb_per_s"] == 2.0
    assert found["push/link_share"] == pytest.approx(2e9 / (3.35e12 / 2))


def test_steps_follow_on_unless_something_came_between(tmp_path: Path, clock: SimpleNamespace) -> None:
    """What an engine did between the end of a step and its answer belongs to the next step."""
    first = {"policy": [train(102.0, 104.0)], "engine": [engine((108.0, 112.0))]}
    second = {"policy": [train(113.0, 114.0)], "engine": [engine((115.0, 116.0))]}
    evaluating = {"policy": [train(0, 0)], "engine": [engine((120.0, 140.0), num_completion_tokens=999)]}
    third = {"policy": [train(151.0, 156.0)], "engine": [engine((140.0, 151.0), num_completion_tokens=40)]}
    account = accountant(tmp_path, (), NOTHING, first, second, evaluating, third)
    found = one_step(account, clock, 110.0)
    assert (found["gpu/rollout/share"], found["gpu/idle/share"]) == (0.2, 0.6)
    clock.now = 111.0
    found = one_step(account, clock, 120.0)
    assert found["time/step_s"] == 10.0
    assert (found["gpu/train/share"], found["gpu/rollout/share"]) == (0.1, 0.3)
    account.interrupt()
    clock.now = 150.0
    found = one_step(account, clock, 160.0)
    assert found["time/step_s"] == 10.0
    assert (found["gpu/train/share"], found["gpu/rollout/share"]) == (0.5, 0.1)
    assert found["throughput/engine_tokens_per_gpu_s"] == 4.0


def test_phases_are_the_controllers_and_start_anew(tmp_path: Path, clock: SimpleNamespace) -> None:
    account = accountant(tmp_path, (), NOTHING, NOTHING, NOTHING)
    with account.phase("rollout"):
        clock.now += 50.0

    async def step(seconds: float) -> dict[str, float]:
        await account.begin()
        with account.phase("rollout"):
            clock.now += seconds
        return await account.end(BATCH)

    assert [asyncio.run(step(seconds))["time/rollout_s"] for seconds in (3.0, 4.0)] == [3.0, 4.0]


@pytest.mark.parametrize("set_by", [3600.0, -3600.0])
def test_a_clock_that_is_set_within_a_step_is_not_time_that_passed(
    tmp_path: Path, clock: SimpleNamespace, set_by
) -> None:
    """The watchdog allows ten times the slowest step: an hour that never was would let a run hang for ten."""
    first = {"policy": [train(102.0, 104.0)], "engine": [engine()]}
    second = {"policy": [train(113.0 + set_by, 118.0 + set_by)], "engine": [engine()]}
    account = accountant(tmp_path, (), NOTHING, first, second)

    async def step() -> dict[str, float]:
        await account.begin()
        with account.phase("rollout"):
            clock.now, clock.set_by = 110.0, set_by
        return await account.end(BATCH)

    found = asyncio.run(step())
    assert (found["time/step_s"], found["time/rollout_s"], account.slowest_step_s) == (10.0, 10.0, 10.0)
    assert (found["gpu/train/share"], found["gpu/idle/share"]) == (0.2, 0.8)
    found = one_step(account, clock, 120.0)
    assert found["time/step_s"] == 10.0
    assert found["gpu/train/share"] == 0.5

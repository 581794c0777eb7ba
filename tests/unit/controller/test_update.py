"""A batch into optimizer steps: what is computed when, and on whom. Policy ranks are recorders here."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest
import torch
from groups import make_turn

from skyrl_nat.config.load import load_config
from skyrl_nat.controller.update import Coefficients, samples_of, update_policy
from skyrl_nat.types import Outcome, RewardResult, Rollout, RolloutGroup, Task


def rollout(name: str, reward: float | None, *, sampled: int = 2, outcome: Outcome = Outcome.FINISHED) -> Rollout:
    result = None if reward is None else RewardResult(total=reward, parts={}, is_success=reward >= 1.0)
    return Rollout(
        rollout_id=name,
        task=Task(task_id="t", family="f", payload={}),
        token_ids=[1] * (2 + sampled),
        loss_mask=[False, False] + [True] * sampled,
        rollout_logprobs=[0.0, 0.0] + [-1.0] * sampled,
        token_versions=[-1, -1] + [0] * sampled,
        turns=[],
        prompt=[],
        outcome=outcome,
        reward=result,
    )


def group(index: int, rewards: list[float | None], **changes) -> RolloutGroup:
    lost = Outcome.INFRASTRUCTURE_FAILURE
    rollouts = [
        rollout(f"{index}-{i}", reward, **({"outcome": lost} if reward is None else changes))
        for i, reward in enumerate(rewards)
    ]
    return RolloutGroup(task=Task(task_id=f"t{index}", family="f", payload={}), index=index, rollouts=rollouts)


@dataclass
class Ranks:
    """Remembers calls; log-probs are -2."""

    size: int
    calls: list[tuple[str, list]] = field(default_factory=list)

    async def call_each(self, method, arguments):
        self.calls.append((method, list(arguments)))
        if method == "compute_logprobs":
            return [[torch.full((m.num_tokens,), -2.0) for m in row] for (row,) in arguments]
        if method == "trained_tokens":
            return [self._trained(row) for row, _ in self.of("train")[-1]]
        metrics = {
            "loss/policy": float(len(self.calls)),
            "loss/log_ratio_mean": 0.0,
            "loss/token_kl": 5.0,
            "loss/num_tokens": 0.0,
            "loss/rollout_logprob_diff": 0.0,
        }
        return [metrics for _ in arguments]

    @staticmethod
    def _trained(row):
        return [(torch.full((m.num_tokens,), -3.0), torch.zeros(m.num_tokens, dtype=torch.bool)) for m in row]

    def of(self, method: str) -> list[list]:
        return [arguments for name, arguments in self.calls if name == method]


@dataclass
class FakeRun:
    config: object
    policy: Ranks
    reference: Ranks | None = None
    step: int = 0
    coefficients: Coefficients = field(default_factory=lambda: Coefficients(0.0, 0.0))


def run_update(groups, *overrides: str, ranks: int = 1, has_reference: bool = False):
    config = load_config([f"cluster.num_policy_ranks={ranks}", *overrides])
    run = FakeRun(config, Ranks(ranks), Ranks(ranks) if has_reference else None)
    run.coefficients = Coefficients(config.algorithm.kl_coefficient, config.algorithm.entropy_coefficient)
    metrics = asyncio.run(update_policy(run, groups))
    return run, metrics


def test_advantages_are_relative_to_the_valid_rollouts_of_the_group():
    """Rows 15, 16, 18 and GM-04: the lost rollout is not a 0 and shifts nobody."""
    samples = samples_of([group(0, [1.0, None, 0.0, 0.0, 0.0])], load_config([]))
    assert [sample.sample_id for sample in samples] == ["0-0", "0-2", "0-3", "0-4"]
    assert [round(sample.advantages[-1], 4) for sample in samples] == [1.5, -0.5, -0.5, -0.5]


def test_equal_rewards_give_no_advantage_but_keep_their_samples():
    """Row 13."""
    samples = samples_of([group(0, [0.7, 0.7, 0.7])], load_config([]))
    assert [sample.advantages[-1] for sample in samples] == [0.0, 0.0, 0.0]


def test_truncated_rollouts_count_for_the_baseline_and_leave_the_loss_where_dapo_says_so():
    """Rows 6 and 47."""
    mixed = group(0, [1.0, 0.0])
    mixed.rollouts[1] = rollout("0-1", 0.0, outcome=Outcome.TRUNCATED)
    assert len(samples_of([mixed], load_config([]))) == 2
    kept = samples_of([mixed], load_config(["algorithm=dapo"]))
    assert [(sample.sample_id, round(sample.advantages[-1], 4)) for sample in kept] == [("0-0", 0.7071)]


def test_denominator_is_that_of_all_ranks_and_micro_batches():
    """Rows 1 and 2."""
    groups = [group(0, [1.0, 0.0], sampled=1), group(1, [1.0, 0.0], sampled=9)]
    run, _ = run_update(groups, ranks=2)
    (arguments,) = run.policy.of("train")
    assert [constants.denominator for _, constants in arguments] == [20.0, 20.0]
    assert len({len(row) for row, _ in arguments}) == 1, "every rank has the same number of micro-batches"


def test_ranks_that_share_a_row_get_the_same_one_and_their_answers_count_once():
    groups = [group(0, [1.0, 0.0], sampled=1), group(1, [1.0, 0.0], sampled=9)]
    run, _ = run_update(
        groups, "model.sequence_parallel_size=2", "algorithm.old_logprobs=recompute", ranks=4, has_reference=True
    )
    (arguments,) = run.policy.of("train")
    rows = [[m.sample_ids for m in row] for row, _ in arguments]
    assert rows[0] == rows[1] != rows[2] == rows[3]
    assert sorted(name for row in rows[::2] for ids in row for name in ids) == ["0-0", "0-1", "1-0", "1-1"]
    for row, constants in arguments:
        assert constants.denominator == 20.0
        assert all(bool((m.old_logprobs == -2).all()) and bool((m.ref_logprobs == -2).all()) for m in row)


def test_single_update_needs_no_second_forward_pass():
    run, _ = run_update([group(0, [1.0, 0.0])])
    assert run.policy.of("compute_logprobs") == []


def test_several_updates_compute_all_old_logprobs_before_the_first_step():
    """GM-10: recomputing them in between would make every ratio 1."""
    groups = [group(i, [1.0, 0.0]) for i in range(4)]
    run, metrics = run_update(
        groups, "trainer.tasks_per_step=4", "trainer.updates_per_batch=2", "algorithm.old_logprobs=recompute"
    )
    assert [name for name, _ in run.policy.calls] == ["compute_logprobs", "compute_logprobs", "train", "train"]
    for arguments in run.policy.of("train"):
        for row, _ in arguments:
            assert all(bool((m.old_logprobs == -2).all()) for m in row)
    assert metrics["loss/policy"] == 3.5, "the mean of both optimizer steps"


def test_reference_is_asked_only_where_there_is_one():
    run, _ = run_update([group(0, [1.0, 0.0])], "algorithm.kl_coefficient=0.1", has_reference=True)
    ((row, _),) = run.policy.of("train")[0]
    assert all(bool((m.ref_logprobs == -2).all()) for m in row)
    without, _ = run_update([group(0, [1.0, 0.0])])
    ((row, _),) = without.policy.of("train")[0]
    assert all(m.ref_logprobs is None for m in row)


def test_counts_of_the_batch_are_reported():
    _, metrics = run_update([group(0, [1.0, None, 0.0], sampled=3)])
    assert (metrics["batch/num_samples"], metrics["batch/num_tokens"], metrics["batch/num_loss_tokens"]) == (2, 10, 6)


def test_kto_measures_its_baseline_on_mismatched_pairs_before_the_step():
    """Both models score the pairs; the baseline is known over all ranks before any of them trains."""
    overrides = ["algorithm=kto", "environment.recorded_files=[x]"]
    run, _ = run_update([group(0, [1.0, 0.0]), group(1, [0.0, 1.0])], *overrides, ranks=2, has_reference=True)
    assert [name for name, _ in run.policy.calls] == ["compute_logprobs", "train"]
    assert [name for name, _ in run.reference.calls] == ["compute_logprobs", "compute_logprobs"]
    (arguments,) = run.policy.of("train")
    assert [constants.kto_baseline for _, constants in arguments] == [0.0, 0.0], "equal log-probs are 0 apart"
    assert {float(a) for row, _ in arguments for m in row for a in m.advantages[m.loss_mask]} == {1.0, -1.0}


def test_coefficients_move_after_the_step_and_travel_with_it():
    run, metrics = run_update(
        [group(0, [1.0, 0.0])],
        "algorithm.kl_coefficient=0.1",
        "algorithm.kl_target=0.01",
        "algorithm.kl_horizon=10",
        has_reference=True,
    )
    ((_, constants),) = run.policy.of("train")[0]
    assert constants.kl_coefficient == metrics["loss/kl_coefficient"] == 0.1
    assert run.coefficients.kl == pytest.approx(0.1 * (1 + 0.2 * 2 / 10)), "the fake ranks measured far too much"


def test_segments_of_a_rollout_share_its_advantage_in_any_order():
    """Row 11, GM-13: A has 0, B 6 in two segments: the baseline is 3, not that of three samples."""
    cut = replace(
        rollout("b", 6.0, sampled=4),
        loss_mask=[False, True, True, False, True, True],
        segment_starts=[0, 3],
    )
    for members in ([rollout("a", 0.0), cut], [cut, rollout("a", 0.0)]):
        whole = RolloutGroup(task=Task(task_id="t", family="f", payload={}), index=0, rollouts=members)
        found = {s.sample_id: s.advantages[-1] for s in samples_of([whole], load_config(["algorithm=dr_grpo"]))}
        assert found == {"a": -3.0, "b#0": 3.0, "b#1": 3.0}


class Counting(Ranks):
    """Every optimizer step reports another KL and 100 tokens more than the one before."""

    async def call_each(self, method, arguments):
        answers = await super().call_each(method, arguments)
        number = len(self.of("train"))
        if method == "train":
            answers = [
                answer
                | {
                    "loss/log_ratio_mean": number,
                    "loss/num_tokens": 100.0 * number,
                    "loss/rollout_logprob_diff": 0.1 * number,
                }
                for answer in answers
            ]
        return answers


def test_the_ratio_of_the_first_update_is_watched_and_tokens_of_all_updates_are_counted():
    """Rows 30 and 50: two optimizer steps with KL 1 and 2, of 100 and 200 tokens."""
    config = load_config(
        ["trainer.updates_per_batch=2", "trainer.tasks_per_step=2", "algorithm.old_logprobs=recompute"]
    )
    run = FakeRun(config, Counting(1))
    metrics = asyncio.run(update_policy(run, [group(0, [1.0, 0.0]), group(1, [1.0, 0.0])]))
    assert metrics["batch/first_policy_kl"] == 1
    assert metrics["batch/first_logprob_diff"] == 0.1
    assert metrics["batch/num_trained_tokens"] == 300


@pytest.mark.parametrize(("preset", "expected"), [("grpo", 12), ("dapo", 7)])
def test_tokens_to_be_trained_are_counted_from_the_turns(preset: str, expected: int):
    """Row 50: turns of 3, 4 and 5 tokens; those of a truncated rollout count where they are trained."""
    members = [rollout("a", 1.0), rollout("b", 0.0), rollout("c", 0.0, outcome=Outcome.TRUNCATED)]
    members = [replace(member, turns=[make_turn(count)]) for member, count in zip(members, (3, 4, 5), strict=True)]
    lost = replace(rollout("d", None, outcome=Outcome.INFRASTRUCTURE_FAILURE), turns=[make_turn(9)])
    whole = RolloutGroup(task=Task(task_id="t", family="f", payload={}), index=0, rollouts=[*members, lost])
    _, metrics = run_update([whole], f"algorithm={preset}")
    assert metrics["batch/num_sampled_tokens"] == expected


def test_coefficients_of_the_step_are_those_that_were_adapted():
    config = load_config(["algorithm.kl_coefficient=0.1", "algorithm.entropy_coefficient=0.2"])
    run = FakeRun(config, Ranks(1), Ranks(1), coefficients=Coefficients(0.3, 0.4))
    asyncio.run(update_policy(run, [group(0, [1.0, 0.0])]))
    ((_, constants),) = run.policy.of("train")[0]
    assert (constants.kl_coefficient, constants.entropy_coefficient) == (0.3, 0.4)


def test_what_training_said_of_every_token_is_recorded_once_for_each_sample():
    """Over all optimizer steps of the batch and all ranks, with the advantages that the loss got; fillers are none."""
    kept: list[dict] = []

    async def record(columns) -> None:
        kept.append(columns)

    updates = ["trainer.updates_per_batch=2", "trainer.tasks_per_step=2", "algorithm.old_logprobs=recompute"]
    config = load_config(["cluster.num_policy_ranks=2", *updates])
    run = FakeRun(config, Ranks(2))
    groups = [group(0, [1.0, 0.0, 0.5]), group(1, [1.0, 0.0], sampled=5)]
    asyncio.run(update_policy(run, groups, record))
    (columns,) = kept
    found = dict(zip(columns["sample_ids"].tolist(), columns["sizes"].tolist(), strict=True))
    assert found == {"0-0": 2, "0-1": 2, "0-2": 2, "1-0": 5, "1-1": 5}
    assert columns["logprobs"].tolist() == [-3.0] * 16
    wanted = {sample.sample_id: sample.advantages[-1] for sample in samples_of(groups, config)}
    ends = columns["sizes"].cumsum() - 1
    last = zip(columns["sample_ids"].tolist(), columns["advantages"][ends].tolist(), strict=True)
    assert dict(last) == pytest.approx(wanted)


def test_nothing_is_asked_of_the_ranks_where_nothing_is_recorded():
    run, _ = run_update([group(0, [1.0, 0.0])])
    assert run.policy.of("trained_tokens") == []

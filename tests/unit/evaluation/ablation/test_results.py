"""What an ablation finds in run folders made by hand, against numbers worked out by hand."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from evaluated import group
from groups import make_group
from recorded_run import RecordedRun, evaluated_run

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.ablation.results import Ablation, compared, read_results, read_run
from skyrl_nat.evaluation.ablation.sweep import WEIGHTS, Sweep, make_sweep
from skyrl_nat.evaluation.measures import ComparisonSettings
from skyrl_nat.evaluation.scores import averaged


def sweep_of(names: str, *seeds: int) -> Sweep:
    return make_sweep({name: [f"x={name}"] for name in names}, seeds, [])


def results(root: Path, sweep: Sweep, threshold: float = 0.5, failed: Sequence[str] = (), unlike=()) -> Ablation:
    return read_results(sweep, root, failed=failed, threshold=threshold, unlike=unlike)


def test_a_run_is_read_with_its_rollouts_seconds_and_need(tmp_path: Path):
    run = read_run(evaluated_run(tmp_path / "a", [0, 0, 0, 0.5], [1, 0, 0, 0.5], [1, 1, 0, 0.5]), 3)
    assert [(point.step, point.rollouts, point.success, point.reward) for point in run.points] == [
        (0, 0, 0.0, 0.125),
        (1, 8, 0.25, 0.375),
        (2, 16, 0.5, 0.625),
    ]
    assert (run.train_s, run.gpu_s) == (20.0, 40.0)
    assert [run.rollouts_needed(share) for share in (0.0, 0.25, 0.26, 0.5, 0.51)] == [0, 8, 16, 16, None]


def test_rollouts_without_a_verdict_are_not_counted_as_trained_and_unknown_gpus_stay_unknown(tmp_path: Path):
    run = RecordedRun(tmp_path / "a")
    run.evaluate(0, [group(0, [0.0])])
    run.train(1, [make_group(0, [0.0, 1.0, None, 1.0])], time__step_s=5.0)
    run.evaluate(1, [group(0, [1.0])])
    found = read_run(tmp_path / "a", 0)
    assert (found.points[-1].rollouts, found.train_s, found.gpu_s) == (3, 5.0, None)


def test_seeds_are_averaged_per_task_and_their_spread_is_told_beside(tmp_path: Path):
    evaluated_run(tmp_path / "a-seed0", [0, 0, 0, 0], [1, 0, 0, 0])
    evaluated_run(tmp_path / "a-seed1", [0, 0, 0, 1], [1, 1, 0, 1])
    evaluated_run(tmp_path / "b-seed0", [0, 0, 0, 0], [1, 1, 1, 1])
    evaluated_run(tmp_path / "b-seed1", [0, 0, 0, 0], [1, 1, 1, 0])
    found = results(tmp_path, sweep_of("ab", 0, 1))
    a, b = found.variants
    assert (a.success["value"], a.success["n"], a.success["method"]) == (0.5, 4, "bca")
    assert a.success_by_seed == {"0": 0.25, "1": 0.75}
    assert (a.success_gain, a.reward_gain) == (0.375, 0.375)
    assert [(p.rollouts, p.success, p.lowest, p.highest) for p in a.curve] == [
        (0, 0.125, 0.0, 0.25),
        (8, 0.5, 0.25, 0.75),
    ]
    assert (a.rollouts_needed, a.mean_rollouts_needed) == ({"0": None, "1": 8}, None)
    assert (b.rollouts_needed, b.mean_rollouts_needed, b.gpu_s) == ({"0": 8, "1": 8}, 8.0, 20.0)
    measure = found.against["b"].success
    # By task: 1 -> 1, 0.5 -> 1, 0 -> 1, 0.5 -> 0.5.
    assert (measure.difference, measure.num_wins, measure.num_losses, measure.num_ties) == (0.375, 2, 0, 2)
    assert measure.test.p == 2 * 0.5**2
    assert found.notes == ("Intervals are over tasks; how far seeds lie apart is told beside them, not in them",)


def test_p_is_corrected_by_holm_over_all_variants(tmp_path: Path):
    base, ends = [0.0] * 12, {"a": 0, "b": 6, "c": 7, "d": 12}
    for name, number in ends.items():
        evaluated_run(tmp_path / f"{name}-seed0", base, [1.0] * number + [0.0] * (12 - number))
    found = results(tmp_path, sweep_of("abcd", 0))
    raw = {"b": 2 * 0.5**6, "c": 2 * 0.5**7, "d": 2 * 0.5**12}
    assert {name: each.success.test.p for name, each in found.against.items()} == pytest.approx(raw)
    adjusted = {"d": 3 * raw["d"], "c": 2 * raw["c"], "b": max(raw["b"], 2 * raw["c"])}
    assert {name: each.success.adjusted_p for name, each in found.against.items()} == pytest.approx(adjusted)
    assert [each.verdict.decision for each in found.against.values()] == ["better"] * 3
    assert "There is one seed: " in found.notes[0]


def test_verdicts_worse_no_difference_and_cannot_tell(tmp_path: Path):
    ends = {"a": [1.0] * 10, "b": [0.0] * 10, "c": [1.0] * 10, "d": [0.0] * 2 + [1.0] * 8}
    for name, end in ends.items():
        evaluated_run(tmp_path / f"{name}-seed0", [0.0] * 10, end)
    against = results(tmp_path, sweep_of("abcd", 0)).against
    assert [each.verdict.decision for each in against.values()] == ["worse", "no_difference", "cannot_tell"]
    assert against["d"].verdict.sentence.startswith("cannot tell: success went from 100.0 to 80.0")
    assert against["c"].success.adjusted_p is None
    assert against["b"].success.adjusted_p == pytest.approx(2 * 2 * 0.5**10)


def test_a_broken_off_rollout_is_a_failure_and_a_lost_one_is_in_no_mean(tmp_path: Path):
    evaluated_run(tmp_path / "a-seed0", [0] * 4, [1, 1, 0, None])
    evaluated_run(tmp_path / "a-seed1", [0] * 4, [1, None, 0, None])
    evaluated_run(tmp_path / "b-seed0", [0] * 4, [1, 1, 1, None])
    evaluated_run(tmp_path / "b-seed1", [0] * 4, [1, 0, 1, 1])
    found = results(tmp_path, sweep_of("ab", 0, 1))
    a, b = found.variants
    assert (a.num_tasks, a.num_without_verdict, a.success["value"]) == (4, 1, pytest.approx(2 / 3))
    assert (b.num_without_verdict, b.success["value"]) == (0, 0.875)
    assert "must differ by at most 0.1" in found.against["b"].verdict.sentence


def test_a_failed_run_is_left_out_and_a_variant_without_a_run_cannot_be_told(tmp_path: Path):
    evaluated_run(tmp_path / "a-seed0", [0] * 6, [0] * 6)
    evaluated_run(tmp_path / "b-seed0", [0] * 6, [1] * 6)
    evaluated_run(tmp_path / "b-seed1", [0] * 6, [1] * 6)
    failed = ["a-seed1", "c-seed0", "c-seed1"]
    found = results(tmp_path, sweep_of("abc", 0, 1), failed=failed)
    a, _, c = found.variants
    assert (a.seeds, a.num_runs, c.seeds, c.success["value"], c.gpu_s, c.curve) == ((0,), 2, (), None, None, ())
    assert found.against["b"].verdict.decision == "better"
    assert found.against["c"].verdict.sentence == "cannot tell: no run ended well of one of the two"
    assert "Not all variants have the same seeds" in found.notes[-1]
    none = results(tmp_path, sweep_of("abc", 0, 1), failed=[f"{name}-seed{seed}" for name in "abc" for seed in (0, 1)])
    assert json.dumps(none.to_dict(), allow_nan=False)


def test_on_other_scales_success_alone_decides(tmp_path: Path):
    evaluated_run(tmp_path / "a-seed0", [0.0] * 10, [0.1] * 10)
    evaluated_run(tmp_path / "b-seed0", [0.0] * 10, [0.9] * 10)
    alike, other = (results(tmp_path, sweep_of("ab", 0), unlike=unlike).against["b"] for unlike in ((), (WEIGHTS,)))
    assert alike.verdict.decision == "better" and "the success of every task is as before" in alike.verdict.sentence
    assert other.verdict.decision == "no_difference" and other.reward is None


def test_other_tasks_are_not_compared():
    settings = ComparisonSettings()
    played = {"a": [group(i, [1.0]) for i in range(4)], "b": [group(i, [1.0]) for i in range(4, 8)]}
    against = compared(played, settings, is_rewarded_alike=True)
    assert against["b"].verdict.sentence.startswith("cannot tell: At most 0.1 of all tasks may be on one side only")


def test_the_order_of_tasks_and_seeds_does_not_matter(tmp_path: Path):
    runs = [read_run(evaluated_run(tmp_path / str(seed), [0] * 3, [seed, 1, 0.5]), seed) for seed in (0, 1)]
    a, b = averaged(run.groups for run in runs), averaged(run.groups for run in runs[::-1])
    settings = ComparisonSettings(num_resamples=200)
    base = [group(i, [0.0]) for i in range(3)]
    found = [compared({"base": base, "x": each}, settings, is_rewarded_alike=True) for each in (a, b[::-1])]
    assert found[0] == found[1]


@pytest.mark.parametrize("what", ["nothing", "no evaluation", "no rollouts"])
def test_a_run_that_cannot_be_read_is_named(tmp_path: Path, what: str):
    folder = tmp_path / "a"
    if what != "nothing":
        evaluated_run(folder, [0], [1])
        (folder / ("evaluations.jsonl" if what == "no evaluation" else "rollouts/eval_000001.jsonl")).unlink()
    with pytest.raises(DataError, match=str(folder)):
        read_run(folder, 0)


def test_an_evaluation_without_any_verdict_is_in_no_curve(tmp_path: Path):
    found = read_run(evaluated_run(tmp_path / "a", [None, None], [1, 0], [None, None]), 0)
    assert [point.step for point in found.points] == [1]
    assert all(math.isfinite(point.success) for point in found.points)

"""The judge of the matrix must fail every run folder that was tampered with."""

import copy
from typing import Any

import pytest
from chaos.judge import Record, complaints, complaints_of_whole

NUM_STEPS = 4


def rollout(step: int, index: int, number: int) -> dict[str, Any]:
    """Return a rollout whose words earn one half."""
    return {
        "rollout_id": f"train-{index}-{number}",
        "task_id": "say_a",
        "index": index,
        "outcome": "finished",
        "reason": "",
        "reward": 0.5,
        "turns": [{"completion": "az", "generate_s": 0.1, "environment_s": 0.2}],
        "metrics": {"retries": 0},
        "score_s": 0.3,
        "token_ids": [1, 2, index],
        "rollout_logprobs": [-0.5, -3.4254847, -0.25],
        "token_versions": [[step - 1, 2]],
    }


def line(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "loss/policy": 0.25 / step,
        "loss/lr": 1e-3 / step,
        "loss/skipped": 0.0,
        "loss/num_skipped": 0.0,
        "time/train_s": 0.5,
        "rollout/dropped_groups/count": 0.0,
    }


def record() -> Record:
    """Return a run of four steps with two groups of two rollouts each and an evaluation after every second step."""
    return Record(
        metrics=[line(step) for step in range(1, NUM_STEPS + 1)],
        rollouts={
            step: [rollout(step, 2 * step - 2 + group, number) for group in range(2) for number in range(2)]
            for step in range(1, NUM_STEPS + 1)
        },
        evaluations=[
            {"step": step, "success": 0.0, "reward": 0.4, "parts": {"share": 0.4}, "num_without_verdict": 0}
            for step in (2, 4)
        ],
    )


def judge(run: Record, **options: Any) -> list[str]:
    steps = range(1, NUM_STEPS + 1)
    return complaints(run, record(), steps, **{"is_exact": True, **options}) + complaints_of_whole(run)


def forget_step(run: Record) -> None:
    del run.metrics[2]


def train_twice(run: Record) -> None:
    run.metrics.insert(3, line(3))


def other_rate(run: Record) -> None:
    run.metrics[2]["loss/lr"] = 1e-3 / 2


def other_loss(run: Record) -> None:
    run.metrics[3]["loss/policy"] += 1e-12


def jumped_clock(run: Record) -> None:
    run.metrics[1]["time/train_s"] = 3600.5


def clock_set_back(run: Record) -> None:
    run.metrics[1]["time/train_s"] = -3599.5


def same_rollout_again(run: Record) -> None:
    run.rollouts[3][0]["rollout_id"] = "train-0-0"


def lost_group(run: Record) -> None:
    for step in (3, 4):
        for one in run.rollouts[step]:
            one["index"] += 1


def group_counted_but_there(run: Record) -> None:
    run.metrics[2]["rollout/dropped_groups/count"] = 1.0


def paid_failure(run: Record) -> None:
    run.rollouts[2][1] |= {"outcome": "infrastructure_failure", "reason": "engine 0 died"}


def zero_for_a_deadline(run: Record) -> None:
    run.rollouts[2][1] |= {"outcome": "truncated", "reason": "rollout deadline of 40 s"}


def zero_for_a_lost_verdict(run: Record) -> None:
    run.rollouts[2][1]["reward"] = 0.0


def no_verdict(run: Record) -> None:
    run.rollouts[2][1]["reward"] = None


def old_weights(run: Record) -> None:
    run.rollouts[3][2]["token_versions"] = [[2, 1], [1, 1]]


def other_tokens(run: Record) -> None:
    run.rollouts[3][2]["token_ids"] = [1, 2, 99]


def other_logprobs(run: Record) -> None:
    run.rollouts[3][2]["rollout_logprobs"] = [-0.5, -3.4255847, -0.25]


def no_rollout_file(run: Record) -> None:
    del run.rollouts[4]


def no_evaluation(run: Record) -> None:
    del run.evaluations[0]


def two_evaluations(run: Record) -> None:
    run.evaluations.append(copy.deepcopy(run.evaluations[0]))


def other_evaluation(run: Record) -> None:
    run.evaluations[0]["reward"] = 0.3


def evaluation_without_verdict(run: Record) -> None:
    run.evaluations[0]["num_without_verdict"] = 1


def half_a_file(run: Record) -> None:
    run.unfinished.append("train_000004.part")


TAMPERINGS = (
    forget_step,
    train_twice,
    other_rate,
    other_loss,
    jumped_clock,
    clock_set_back,
    same_rollout_again,
    lost_group,
    group_counted_but_there,
    paid_failure,
    zero_for_a_deadline,
    zero_for_a_lost_verdict,
    no_verdict,
    old_weights,
    other_tokens,
    other_logprobs,
    no_rollout_file,
    no_evaluation,
    two_evaluations,
    other_evaluation,
    evaluation_without_verdict,
    half_a_file,
)
EXACT_ONLY = (other_loss, other_tokens, other_logprobs, other_evaluation)


def test_the_undisturbed_run_has_no_complaint():
    assert judge(record()) == []
    assert judge(record(), is_exact=False) == []


@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_a_run_that_was_tampered_with_fails(tamper):
    run = record()
    tamper(run)
    assert judge(run)
    assert bool(judge(run, is_exact=False)) == (tamper not in EXACT_ONLY)


def test_seconds_and_retries_may_differ():
    run = record()
    run.metrics[1]["time/train_s"] = 30.0
    run.rollouts[2][0] |= {"score_s": 9.0, "metrics": {"retries": 2}}
    run.rollouts[2][0]["turns"][0]["generate_s"] = 9.0
    assert judge(run) == []


def test_a_dropped_group_that_is_counted_is_no_loss():
    run = record()
    lost_group(run)
    run.metrics[2]["rollout/dropped_groups/count"] = 1.0
    assert judge(run, is_exact=False) == []


def test_a_skipped_step_moves_the_schedule_by_one():
    """Step 2 has no finite gradient: its rate is that of the second optimizer step, and so is step 3's."""
    run = record()
    run.metrics[1] |= {"loss/skipped": 1.0, "loss/num_skipped": 1.0}
    run.metrics[2] |= {"loss/lr": 1e-3 / 2, "loss/num_skipped": 1.0}
    run.metrics[3] |= {"loss/lr": 1e-3 / 3, "loss/num_skipped": 1.0}
    assert judge(run, is_exact=False) == []
    run.metrics[2]["loss/lr"] = 1e-3 / 3
    assert judge(run, is_exact=False)


def test_logprobs_may_be_rounded_in_another_way():
    run = record()
    run.rollouts[3][2]["rollout_logprobs"] = [-0.5, -3.4254851, -0.25]
    assert judge(run) == []

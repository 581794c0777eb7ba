"""The judge of the matrix must fail every run folder that was tampered with."""

import copy
from typing import Any

import pytest
from chaos.judge import Record, complaints, complaints_of_stall, complaints_of_whole

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


def test_a_stale_group_that_is_counted_is_no_loss():
    run = record()
    lost_group(run)
    run.metrics[2]["rollout/stale_groups/count"] = 1.0
    assert judge(run, is_exact=False, staleness=1) == []


def test_a_run_that_plays_ahead_may_be_as_many_versions_behind_as_its_bound_says():
    """Tokens of step 3 are of version 2, or of 1 with a staleness of 1; never of 0 or of the one it makes."""
    run = record()
    old_weights(run)
    assert judge(run, is_exact=False, staleness=1) == []
    for version in (0, 3):
        run.rollouts[3][2]["token_versions"] = [[2, 1], [version, 1]]
        assert "must be of versions [1, 2]" in judge(run, is_exact=False, staleness=1)[0]


def test_the_first_step_has_one_version_only():
    assert judge(record(), is_exact=False, staleness=1) == []
    run = record()
    run.rollouts[1][0]["token_versions"] = [[-1, 3]]
    assert judge(run, is_exact=False, staleness=1)


STALL = """no progress for 8 s in phase rollout of step 3: the controller waits for engine 1 in `generate` since 8 s

== policy 0: process 11 is sleeping; children: none
Thread 0x1 (most recent call first):
  File "x.py", line 1 in wait
== engine 0: process 12 is sleeping; children: none
  File "x.py", line 1 in wait
== engine 1: process 13 is sleeping; children: none
Thread 0x3 (most recent call first):
  File "x.py", line 1 in wait
  File "armed.py", line 70 in stand_still
== environment 0: process 14 is sleeping; children: none
  File "x.py", line 1 in wait
== reward 0: process 15 is sleeping; children: none
  File "x.py", line 1 in wait
== controller, task Task-1
"""


def judge_stall(*texts: str, role: str = "engine", method: str = "generate") -> list[str]:
    run = record()
    run.stalls[3] = list(texts)
    return complaints_of_stall(run, 3, role, method)


def test_a_stall_is_told_once_with_the_name_and_the_stack_of_who_hangs():
    assert judge_stall(STALL) == []


def test_a_trainer_that_is_ahead_may_come_to_wait_a_step_later_with_others():
    run = record()
    run.stalls[4] = [STALL.replace("for engine 1", "for engine 0 in `generate` since 9 s (1 calls), engine 1")]
    assert complaints_of_stall(run, 3, "engine", "generate", staleness=1) == []
    assert complaints_of_stall(run, 3, "engine", "generate") == ["one stall must be told of in step 3, found 0"]
    assert complaints_of_stall(run, 4, "engine", "generate") != []


@pytest.mark.parametrize(
    ("texts", "word"),
    [
        ((), "found 0"),
        ((STALL, STALL), "found 2"),
        ((STALL.replace("== reward 0", "== reward 1"),), "stacks of reward 0"),
        ((STALL.replace("stand_still", "stood"),), "found nobody"),
        ((STALL.replace("wait\n== engine 1", "stand_still\n== engine 1"),), "one engine must be seen to hang"),
        ((STALL.replace("waits for engine 1", "waits for engine 0"),), "must name engine 1 in `generate`"),
        (
            (STALL.replace("for engine 1", "for policy 0 in `train` since 9 s (1 calls), engine 1"),),
            "must name engine 1",
        ),
        ((STALL.replace("`generate`", "`update_weights`"),), "must name engine 1 in `generate`"),
    ],
)
def test_a_stall_that_is_told_in_another_way_fails(texts: tuple[str, ...], word: str):
    [complaint] = judge_stall(*texts)
    assert word in complaint


def test_a_stall_of_another_role_fails():
    [complaint] = judge_stall(STALL, role="reward", method="score")
    assert "one reward must be seen to hang in step 3, found ['engine 1']" in complaint


def test_stalls_of_a_run_folder_are_read_by_step(tmp_path):
    (tmp_path / "stalls").mkdir()
    for name, text in (("000003_101112", "one"), ("000003_101113", "two"), ("000012_101114", "three")):
        (tmp_path / "stalls" / f"step_{name}.txt").write_text(text)
    assert Record.read(tmp_path).stalls == {3: ["one", "two"], 12: ["three"]}


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

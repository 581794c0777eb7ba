"""Section `rewards`: the judge of the config's family gives right answers 1 and broken ones less."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from skyrl_nat.doctor.check import Check, none_of, skipped
from skyrl_nat.environments.family import Artifact, Family, KnownAnswers
from skyrl_nat.rewards.validators import Validator
from skyrl_nat.types import RewardResult, Task

NUM_TASKS = 2
RIGHT = "right answers that do not earn 1"
WRONG = "broken answers that earn 1 or are called a success"
SAME = "answers judged twice whose rewards differ"
SEED = 0
"""Of fresh inputs."""
_ROUNDING = 1e-9
_ADVICE = "Correct the task's hidden part or the judge; a policy would learn what is paid, not what is right"


def check_rewards(family: Family, tasks: Sequence[Task], *, name: str = "") -> list[Check]:
    """Return the checks of a family's judge on some tasks.

    Args:
        family: Opened; stays open.
        tasks: With their hidden parts; the first `NUM_TASKS`.
        name: Of the family.
    """
    if family.known_answers is None:
        return [skipped(what, f"family {name} knows no answers in advance") for what in (RIGHT, WRONG, SAME)]
    validator = family.make_validator()
    if validator is None:
        reason = f"family {name} has no judge: the rewards of its steps are summed"
        return [skipped(what, reason) for what in (RIGHT, WRONG, SAME)]
    try:
        return judge_known(validator, family.known_answers, tasks[:NUM_TASKS])
    finally:
        validator.close()


def judge_known(
    validator: Validator, known_answers: Callable[[Task], KnownAnswers], tasks: Sequence[Task]
) -> list[Check]:
    """Return the checks of what a validator says of answers that are known.

    Args:
        validator: Stays open.
        known_answers: Gives them for a task.
        tasks: With their hidden parts.
    """
    unpaid, paid, unlike, highest = list[str](), list[str](), list[str](), 0.0
    num_right = num_wrong = 0
    for number, task in enumerate(tasks):
        known = known_answers(task)
        num_right, num_wrong = num_right + len(known.right), num_wrong + len(known.wrong)
        for what, artifact in known.right.items():
            result = _judged(validator, task, artifact)
            if abs(result.total - 1.0) > _ROUNDING or not result.is_success:
                unpaid.append(f"{task.task_id}, {what}: {_said(result)}")
            again = _judged(validator, task, artifact) if number == 0 else result
            if again.parts != result.parts:
                unlike.append(f"{task.task_id}, {what}: {_said(result)}, then {_said(again)}")
        for what, artifact in known.wrong.items():
            result = _judged(validator, task, artifact)
            highest = max(highest, result.total)
            if result.total >= 1.0 - _ROUNDING or result.is_success:
                paid.append(f"{task.task_id}, {what}: {_said(result)}")
    return [
        _check(RIGHT, unpaid, f"none of {num_right}, {len(tasks)} tasks"),
        _check(WRONG, paid, f"none of {num_wrong}, the highest earns {highest:.2f}"),
        _check(SAME, unlike, "none"),
    ]


def _judged(validator: Validator, task: Task, artifact: Artifact) -> RewardResult:
    return validator.validate(task, dict(artifact), seed=SEED)


def _said(result: RewardResult) -> str:
    reason = f" ({result.findings[0][:120]})" if result.findings else ""
    return f"{result.total:.3f}{' and a success' if result.is_success else ''}{reason}"


def _check(name: str, faults: list[str], found: str) -> Check:
    check = none_of("", name, faults, advice=_ADVICE)
    return check if faults else replace(check, found=found)

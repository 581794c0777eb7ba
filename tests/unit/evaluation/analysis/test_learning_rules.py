"""What is said of learning: said where it is so, and not said of noise."""

import itertools

import numpy as np
import pytest
from recorded_run import RecordedRun, findings_in, group_of, judged, train_run


def clipped(value: float) -> float:
    return float(np.clip(value, 0, 1))


def noisy(step, rng):
    return judged("r", clipped(rng.normal(0.4, 0.2)), is_success=bool(rng.random() < 0.2))


def learner(step, rng):
    """Reward and success rise together."""
    skill = step / 40
    return judged("r", clipped(skill + rng.normal(0, 0.1)), is_success=bool(rng.random() < skill))


def hacker(step, rng):
    """Reward rises through `style` alone."""
    style = clipped(step / 40 + rng.normal(0, 0.1))
    solves = float(rng.random() < 0.1)
    return judged("r", 0.5 * style + 0.5 * solves, parts={"style": style, "solves": solves}, is_success=solves == 1)


def severities(folder, rule: str) -> list[str]:
    return [str(finding.severity) for finding in findings_in(folder, rule)]


def test_learning_is_told_and_a_fall_is_a_problem(tmp_path):
    train_run(tmp_path / "up", learner)
    (up,) = findings_in(tmp_path / "up", "learning")
    assert (str(up.severity), up.sentence[:26]) == ("note", "The training reward rises ")
    assert up.evidence["n"] == 30
    train_run(tmp_path / "down", lambda step, rng: learner(31 - step, rng))
    assert severities(tmp_path / "down", "learning") == ["problem"]


def test_nothing_is_claimed_of_noise_or_of_few_steps(tmp_path):
    train_run(tmp_path / "noise", noisy, num_steps=12)
    train_run(tmp_path / "few", learner, num_steps=5)
    for name in ("noise", "few"):
        (found,) = findings_in(tmp_path / name, "learning")
        assert found.sentence.startswith("Cannot tell")
        for rule in ("hacking", "drivers", "traded", "under_fitting", "over_fitting"):
            assert findings_in(tmp_path / name, rule) == []


def swinging(height):
    """Play rewards a tenth above and below a height by step: a spread, and means that are exactly the height."""
    signs = itertools.cycle((-0.1, 0.1))
    return lambda step, rng: judged("r", height(step) + next(signs), is_success=False)


def test_a_policy_that_stands_still_is_warned_of_and_one_that_has_nothing_left_is_not(tmp_path):
    train_run(tmp_path / "still", swinging(lambda step: 0.4))
    (found,) = findings_in(tmp_path / "still", "learning")
    assert (str(found.severity), "stands still" in found.sentence) == ("warning", True)
    train_run(tmp_path / "solved", lambda step, rng: judged("r", 1.0))
    (found,) = findings_in(tmp_path / "solved", "learning")
    assert "little is left to learn" in found.sentence


def test_reward_without_success_is_a_suspect_with_the_parts_that_rise(tmp_path):
    train_run(tmp_path / "run", hacker)
    (found,) = findings_in(tmp_path / "run", "hacking")
    assert str(found.severity) == "problem"
    assert found.evidence["rising_parts"] == "style"
    assert found.evidence["success_high"] < 0.5 * found.evidence["change"]


def partly_right(hidden: float, form: float):
    """Return a player whose shares of right hidden inputs and of right form rise by so much; none succeeds."""

    def play(step, rng):
        right, build = (clipped(worth * step / 40 + rng.normal(0.1, 0.05)) for worth in (hidden, form))
        parts = {"tools_oracle": right, "shaping_builds": build}
        return judged("r", 0.5 * right + 0.5 * build, parts=parts, is_success=False)

    return play


@pytest.mark.parametrize(
    ("hidden", "form", "family", "severity"),
    [
        (1.0, 0.0, "nat_agent", "warning"),
        (0.8, 0.4, "nat_agent", "warning"),
        (0.4, 0.8, "nat_agent", "problem"),
        (0.0, 1.0, "nat_agent", "problem"),
        (1.0, 0.0, "a family that names no parts", "problem"),
    ],
)
def test_partial_gains_on_hidden_tests_are_a_warning_and_gains_of_form_a_problem(
    tmp_path, hidden: float, form: float, family: str, severity: str
):
    train_run(tmp_path / "run", partly_right(hidden, form), family=family)
    (found,) = findings_in(tmp_path / "run", "hacking")
    assert str(found.severity) == severity
    assert ("Suspect of reward hacking" in found.sentence) == (severity == "problem")


def test_of_parts_that_do_not_make_up_the_reward_all_that_rise_must_be_measured_on_hidden_tests(tmp_path):
    def play(step, rng, form):
        right = clipped(step / 40 + rng.normal(0, 0.05))
        parts = {"tools_oracle": right, "shaping_builds": form * right}
        return judged("r", clipped(step / 80 + rng.normal(0.2, 0.2)), parts=parts, is_success=False)

    for name, form, severity in (("hidden", 0.0, "warning"), ("both", 1.0, "problem")):
        train_run(tmp_path / name, lambda step, rng, form=form: play(step, rng, form), family="nat_agent")
        assert severities(tmp_path / name, "hacking") == [severity]


def test_reward_with_success_is_none(tmp_path):
    train_run(tmp_path / "run", learner)
    assert findings_in(tmp_path / "run", "hacking") == []


def test_a_success_too_rare_to_judge_is_no_suspect(tmp_path):
    run, rng = RecordedRun(tmp_path / "run"), np.random.default_rng(0)
    for step in range(1, 13):
        rollouts = [judged("r", clipped(step / 20), is_success=bool(rng.random() < 0.5)) for _ in range(2)]
        run.train(step, [group_of(step, rollouts)])
    (found,) = findings_in(tmp_path / "run", "hacking")
    assert found.sentence.startswith("Cannot tell whether success follows the reward")


def test_the_part_that_drives_the_reward_is_named_with_its_share(tmp_path):
    def play(step, rng):
        fast, slow = step / 40, step / 400
        return judged("r", 0.5 * fast + 0.5 * slow, parts={"fast": fast, "slow": slow}, is_success=False)

    train_run(tmp_path / "run", play)
    # Equal parts up to a factor share the least squares by it: 10 to 1 in what they do, squared.
    (found,) = findings_in(tmp_path / "run", "drivers")
    assert found.sentence.startswith("fast makes 99% of the reward's change")
    assert found.evidence["fit"] == pytest.approx(1.0)


def test_a_part_that_falls_while_the_reward_rises_is_traded(tmp_path):
    def play(step, rng):
        up, down = clipped(step / 40 + rng.normal(0, 0.05)), clipped(0.8 - step / 60 + rng.normal(0, 0.05))
        return judged("r", 0.8 * up + 0.2 * down, parts={"up": up, "down": down}, is_success=bool(rng.random() < up))

    train_run(tmp_path / "run", play)
    (found,) = findings_in(tmp_path / "run", "traded")
    assert found.sentence.startswith("down falls from")
    assert found.evidence["weight"] == pytest.approx(0.2)
    train_run(tmp_path / "other", hacker)
    assert findings_in(tmp_path / "other", "traded") == []


def evaluated(folder, held_out, *, num_tasks: int = 12, num_evaluations: int = 11):
    """Write a learning run whose held-out tasks earn what a function of step and task says."""
    run = train_run(folder, learner)
    for step in range(0, 3 * num_evaluations, 3):
        groups = [group_of(i, [judged("e", clipped(held_out(step, i)))], f"held {i}") for i in range(num_tasks)]
        run.evaluate(step, groups)


def test_held_out_tasks_are_compared_with_themselves(tmp_path):
    evaluated(tmp_path / "up", lambda step, task: float(step > 10 and task < 9))
    (found,) = findings_in(tmp_path / "up", "held_out")
    assert found.sentence.startswith("Held-out success rises from 0 to 0.75 between steps 0 and 30")
    evaluated(tmp_path / "down", lambda step, task: float(step < 10 and task < 9))
    assert severities(tmp_path / "down", "held_out") == ["problem"]
    evaluated(tmp_path / "same", lambda step, task: float((step + task) % 2))
    (found,) = findings_in(tmp_path / "same", "held_out")
    assert found.sentence.startswith("Cannot tell whether held-out success changes")
    evaluated(tmp_path / "few", lambda step, task: float(step > 10), num_tasks=3)
    assert findings_in(tmp_path / "few", "held_out")[0].sentence.startswith("Cannot tell")


def test_a_widening_gap_is_over_fitting_unless_held_out_tasks_rise_too(tmp_path):
    evaluated(tmp_path / "over", lambda step, task: 0.2)
    assert severities(tmp_path / "over", "over_fitting") == ["warning"]
    evaluated(tmp_path / "both", lambda step, task: 0.1 + step / 200 + task / 1000)
    assert severities(tmp_path / "both", "over_fitting") == ["note"]
    evaluated(tmp_path / "none", lambda step, task: step / 40)
    assert findings_in(tmp_path / "none", "over_fitting") == []
    evaluated(tmp_path / "few", lambda step, task: 0.2, num_evaluations=4)
    assert findings_in(tmp_path / "few", "over_fitting")[0].sentence.startswith("Cannot tell")


def test_a_run_that_stops_early_under_fits(tmp_path):
    train_run(tmp_path / "stops", swinging(lambda step: min(0.4, step / 25)), num_steps=40)
    (found,) = findings_in(tmp_path / "stops", "under_fitting")
    assert "stood still at 0.4 since step 21" in found.sentence
    train_run(tmp_path / "goes_on", swinging(lambda step: step / 50), num_steps=40)
    assert findings_in(tmp_path / "goes_on", "under_fitting") == []

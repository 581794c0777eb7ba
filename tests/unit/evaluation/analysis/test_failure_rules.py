"""What is said of failures."""

from dataclasses import replace

from groups import make_rollout
from recorded_run import findings_in, judged, stages, train_run

from skyrl_nat.types import Outcome


def test_the_most_frequent_finding_is_named_from_a_fifth_on(tmp_path):
    def play(share: float):
        return lambda step, rng: judged("r", 0.5, findings=["tool a_1: 0 of 5"] if rng.random() < share else [])

    train_run(tmp_path / "often", play(0.6))
    (found,) = findings_in(tmp_path / "often", "frequent")
    assert found.sentence.endswith("have the finding: tool NAME: N of N")
    assert found.evidence["n"] == 10 * 16
    assert found.evidence["share"] == found.evidence["count"] / found.evidence["n"]
    train_run(tmp_path / "seldom", play(0.1))
    assert findings_in(tmp_path / "seldom", "frequent") == []
    train_run(tmp_path / "never", play(0.0))
    assert findings_in(tmp_path / "never", "frequent") == []


def test_findings_that_come_and_go_are_told_and_steady_ones_are_not(tmp_path):
    def play(step, rng):
        chances = {"comes": step / 40, "goes": 1 - step / 30, "stays": 0.5}
        return judged("r", 0.5, findings=[name for name, chance in chances.items() if rng.random() < chance])

    train_run(tmp_path / "run", play)
    found = findings_in(tmp_path / "run", "changing")
    assert [(str(each.severity), each.evidence["kind"]) for each in found] == [("warning", "comes"), ("note", "goes")]
    assert {each.evidence["alpha"] for each in found} == {0.01 / 3}


def test_findings_that_come_with_success_are_no_warning(tmp_path):
    def play(step, rng):
        is_far, is_success = rng.random() < step / 40, rng.random() < step / 60
        return judged("r", 0.5, is_success=bool(is_success), findings=["late"] if is_far and not is_success else [])

    train_run(tmp_path, play)
    (found,) = findings_in(tmp_path, "changing")
    assert (str(found.severity), found.evidence["direction"]) == ("note", "rises")


def test_suspects_are_a_note_while_few_and_a_warning_when_more(tmp_path):
    def play(chance):
        return lambda step, rng: judged(
            "r", 0.5, suspicions=["exit calls: a/b.py:3"] if rng.random() < chance(step) else []
        )

    train_run(tmp_path / "few", play(lambda step: 0.01))
    train_run(tmp_path / "many", play(lambda step: 0.2))
    train_run(tmp_path / "more", play(lambda step: 0.004 * step))
    train_run(tmp_path / "none", play(lambda step: 0.0))
    found = {name: findings_in(tmp_path / name, "suspicions") for name in ("few", "many", "more", "none")}
    assert {name: [str(each.severity) for each in each] for name, each in found.items()} == {
        "few": ["note"],
        "many": ["warning"],
        "more": ["warning"],
        "none": [],
    }
    assert "(exit calls: …/b.py:N)" in found["many"][0].sentence
    assert found["many"][0].evidence["judged"] == 30 * 16


def test_the_stage_that_stops_most_is_the_bottleneck(tmp_path):
    def play(step, rng):
        passes = [rng.random() < 0.9, rng.random() < 0.3, rng.random() < 0.9]
        reached = [True, passes[0], passes[0] and passes[1]]
        named = zip(("static", "build", "oracle"), zip(passes, reached, strict=True), strict=True)
        return judged("r", 0.5, stages=stages(**{name: ok if there else None for name, (ok, there) in named}))

    train_run(tmp_path / "run", play)
    (found,) = findings_in(tmp_path / "run", "bottleneck")
    assert found.sentence.startswith("The stage build stops most")
    train_run(tmp_path / "fine", lambda step, rng: judged("r", 0.5, stages=stages(static=True)))
    assert findings_in(tmp_path / "fine", "bottleneck") == []


def test_many_rollouts_without_a_verdict_are_warned_of(tmp_path):
    def play(share: float):
        def one(step, rng):
            lost = make_rollout("r", None)
            if rng.random() < 0.5:
                lost = replace(lost, outcome=Outcome.VALIDATOR_FAILURE)
            return lost if rng.random() < share else judged("r", 0.5)

        return one

    train_run(tmp_path / "many", play(0.2))
    (found,) = findings_in(tmp_path / "many", "lost")
    assert found.evidence["n"] == 480
    train_run(tmp_path / "few", play(0.01))
    assert findings_in(tmp_path / "few", "lost") == []

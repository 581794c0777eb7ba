"""The structured report: what was reached, what was wrong in it, how long it took."""

from skyrl_nat.environments.nat_agent.report import STAGES, Judgement
from skyrl_nat.environments.nat_agent.rewards import Evidence


def test_every_stage_says_whether_it_was_reached_and_what_was_wrong() -> None:
    judgement = Judgement(
        ["agent/config.yml is missing", "register: ImportError: x", "tool f: 1 of 3 hidden inputs right"], []
    )
    judgement.num_static = 1
    judgement.seconds["static"] = 0.25
    stages = [
        {"stage": "register", "ok": False, "error": "ImportError: x", "seconds": 0.5},
        {"stage": "oracle", "ok": True, "error": "", "seconds": 0.125},
        {"stage": "introspect", "tool": "f"},
    ]
    judgement.evidence = Evidence.of({"stages": stages})
    reports = {report.name: report for report in judgement.stages(tuple(STAGES))}
    assert list(reports) == list(STAGES)
    assert (reports["static"].is_ok, reports["static"].evidence) == (False, "agent/config.yml is missing")
    assert (reports["register"].is_ok, reports["register"].seconds) == (False, 0.5)
    assert reports["register"].evidence == "register: ImportError: x"
    assert reports["oracle"].evidence == "tool f: 1 of 3 hidden inputs right"
    assert reports["introspect"].is_ok
    assert (reports["build"].is_ok, reports["build"].evidence) == (False, "not reached")


def test_forged_seconds_do_no_harm_and_parts_of_a_stage_add_up() -> None:
    judgement = Judgement([], [])
    judgement.evidence = Evidence.of({"stages": [{"stage": "build", "ok": True, "seconds": "long"}]})
    with judgement.timed("own_tests"):
        pass
    with judgement.timed("own_tests"):
        pass
    build, tests = judgement.stages(("build", "own_tests"))
    assert (build.is_ok, build.seconds) == (True, 0.0)
    assert tests.is_ok
    assert tests.seconds >= 0.0

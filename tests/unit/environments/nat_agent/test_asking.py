"""Names and places of the questions say nothing; what comes back is understood again."""

import random

import pytest
from mini_nat import open_oracle
from nat_tasks import answer, halves, make_task

from skyrl_nat.environments.nat_agent.asking import Questions, ask, job_arguments
from skyrl_nat.environments.nat_agent.cases import CaseDrawer, Cases
from skyrl_nat.environments.nat_agent.static_checks import StaticReport, check_files
from skyrl_nat.types import Task

WHOLE = make_task(mcp=["scale", "shout"])
WHOLE.hidden["canaries"] = [{"tool": "shout", "input": "left", "output": "left!"}]
SMALL = make_task("single", tools="scale")


def draw(task: Task) -> tuple[Cases, StaticReport]:
    spec, hidden = halves(task)
    return CaseDrawer(open_oracle()).draw(task.task_id, spec, hidden, 1), check_files(spec, answer(task))


def questions(task: Task, seed: int = 0) -> Questions:
    cases, static = draw(task)
    return ask(halves(task)[0], static, cases, random.Random(seed))


@pytest.mark.parametrize("task", [WHOLE, SMALL], ids=["whole", "small"])
def test_names_are_numbers_in_the_order_of_the_job(task: Task) -> None:
    arguments = questions(task).arguments
    items = [*arguments["calls"], *arguments["e2e"], *(arguments["mcp"] or [])]
    assert [item["id"] for item in items] == [str(number) for number in range(len(items))]


@pytest.mark.parametrize("task", [WHOLE, SMALL], ids=["whole", "small"])
def test_every_case_is_asked_once_under_what_it_means(task: Task) -> None:
    cases, _ = draw(task)
    asked = questions(task)
    known = {asked.meanings[item["id"]]: item for item in (*asked.arguments["calls"], *asked.arguments["e2e"])}
    for kind, vectors in (("call", cases.calls), ("error", cases.errors), ("canary", cases.canaries)):
        for index, vector in enumerate(vectors):
            item = known.pop(f"{kind}/{index}")
            assert (item["tool"], item["input"]) == (vector.tool, vector.input)
    for kind, runs in (("e2e", cases.e2e), ("e2e_error", cases.e2e_errors)):
        for index, run in enumerate(runs):
            item = known.pop(f"{kind}/{index}")
            assert (item["input"], item["script"]) == (run.input, list(run.script))
    assert known == {}
    served = [asked.meanings[item["id"]] for item in asked.arguments["mcp"] or []]
    assert served == [f"mcp/{index}" for index in range(len(cases.mcp))]
    assert len(set(asked.meanings.values())) == len(asked.meanings)


def test_kinds_are_mixed_and_repeated_calls_come_last() -> None:
    cases, _ = draw(WHOLE)
    firsts = set()
    for seed in range(12):
        asked = questions(WHOLE, seed)
        order = [asked.meanings[item["id"]] for item in asked.arguments["calls"]]
        assert order[-2:] == [f"call/{len(cases.calls) - 2}", f"call/{len(cases.calls) - 1}"]
        firsts |= {(text.partition("/")[0], order.index(text)) for text in ("error/0", "canary/0", "call/0")}
        runs = [asked.meanings[item["id"]] for item in asked.arguments["e2e"]]
        assert sorted(runs) == [f"e2e/{index}" for index in range(len(runs))]
    assert {kind: len({at for k, at in firsts if k == kind}) > 3 for kind, _ in firsts} == dict.fromkeys(
        ("error", "canary", "call"), True
    )
    assert questions(WHOLE, 3).arguments == questions(WHOLE, 3).arguments


def test_runs_to_refuse_stand_among_the_others() -> None:
    places = set()
    for seed in range(12):
        asked = questions(SMALL, seed)
        runs = [asked.meanings[item["id"]] for item in asked.arguments["e2e"]]
        places.add(runs.index("e2e_error/0"))
    assert len(places) > 1


def test_answers_are_understood_and_what_was_not_asked_is_left_out() -> None:
    asked = Questions({}, {"0": "error/0", "1": "call/7"})
    said = [{"stage": "build", "ok": True}, {"id": "1", "output": 3}, {"id": 0, "raised": []}, {"id": "call/7"}, 5]
    assert asked.understood({"stages": said, "end": "done"}) == {
        "stages": [{"stage": "build", "ok": True}, {"id": "call/7", "output": 3}, {"id": "error/0", "raised": []}, 5],
        "end": "done",
    }
    assert said[1]["id"] == "1"  # a copy


@pytest.mark.parametrize("stages", [None, 7, "x", {"id": "0"}])
def test_output_of_any_shape_is_understood_as_nothing(stages: object) -> None:
    assert Questions({}, {"0": "call/0"}).understood({"stages": stages})["stages"] == []
    assert Questions({}, {}).understood({})["stages"] == []


@pytest.mark.parametrize("name", [[], {}, None, [["0"]], -1, 2, "01", " 0", True])
def test_names_of_any_shape_are_no_answers(name: object) -> None:
    assert Questions({}, {"0": "call/0"}).understood({"stages": [{"id": name}]})["stages"] == []


def test_job_says_where_things_are_and_nothing_of_a_workflow_file_that_does_not_load() -> None:
    spec, _ = halves(WHOLE)
    arguments = job_arguments(spec, check_files(spec, answer(WHOLE)))
    assert (arguments["config"], arguments["module"]) == ("agent/config.yml", "agent.register")
    assert arguments["options"] == {"scale": {"factor": 2}, "shout": {}}
    assert (arguments["calls"], arguments["e2e"], arguments["mcp"]) == ([], [], None)
    broken = check_files(spec, answer(WHOLE) | {"agent/config.yml": "a: ["})
    assert job_arguments(spec, broken)["config"] == ""

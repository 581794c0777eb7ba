"""What the read-only routes answer, each router alone in an app."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from shown_runs import HOSTILE

from skyrl_nat.service.routes.errors import install_handlers
from skyrl_nat.service.routes.runs import runs_router


def client(root: Path) -> TestClient:
    app = FastAPI()
    install_handlers(app)
    app.include_router(runs_router(root))
    return TestClient(app)


def refused(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "field"} and error["code"] == code
    return error


def test_runs_are_listed_with_what_they_are(root: Path):
    runs = {run["id"]: run for run in client(root).get("/runs").json()}
    assert set(runs) == {"jira-a", "jira-b"}
    assert (runs["jira-a"]["family"], runs["jira-a"]["algorithm"]) == ("jira", "grpo")
    assert (runs["jira-a"]["steps"], runs["jira-a"]["last_step"]) == (8, 8)


def test_a_root_that_is_not_there_yet_has_no_runs(tmp_path: Path):
    assert client(tmp_path / "later").get("/runs").json() == []


def test_a_run_shows_config_versions_and_steps_with_rollouts(root: Path):
    about = client(root).get("/runs/jira-a").json()
    assert about["config"]["optimizer"]["lr"] == 1e-4
    assert about["versions"] == {"python": "3.11", "torch": "2.11"}
    assert about["rollout_steps"] == {"train": list(range(1, 9)), "eval": [8]}


@pytest.mark.parametrize("name", ["nobody", "%2e%2e", "..%2fruns%2fjira-a", "%2Fetc", "jira-a%00", ".hidden", "a\\b"])
def test_no_name_leads_anywhere_else_than_to_a_run(root: Path, name: str):
    """Path traversal, NUL and names of nothing."""
    here = client(root)
    for rest in ("", "/metrics", "/keys", "/rollouts"):
        answer = here.get(f"/runs/{name}{rest}")
        assert answer.status_code == 404
        assert "metrics" not in answer.text and str(root) not in answer.text
    refused(here.get("/compare", params={"a": "jira-a", "b": name}), 404, "not_found")


def test_links_that_lead_out_are_not_followed(root: Path, tmp_path: Path):
    own, secret = tmp_path / "runs", tmp_path / "secret"
    shutil.copytree(root, own)
    shutil.copytree(root / "jira-a", secret)
    (own / "linked").symlink_to(secret)
    (own / "jira-b" / "metrics.jsonl").unlink()
    (own / "jira-b" / "metrics.jsonl").symlink_to(secret / "metrics.jsonl")
    (own / "jira-b" / "rollouts" / "train_000009.jsonl").symlink_to(secret / "rollouts" / "train_000001.jsonl")
    (own / "jira-b" / "versions.json").unlink()
    (own / "jira-b" / "versions.json").symlink_to("/proc/self/environ")
    here = client(own)
    assert {run["id"] for run in here.get("/runs").json()} == {"jira-a", "jira-b"}
    refused(here.get("/runs/linked"), 404, "not_found")
    assert here.get("/runs/jira-b/metrics").json()["steps"] == []
    assert here.get("/runs/jira-b").json()["versions"] is None
    refused(here.get("/runs/jira-b/rollouts", params={"step": 9}), 404, "not_found")


def test_metrics_are_columns_and_say_why_a_number_is_missing(root: Path):
    found = client(root).get("/runs/jira-a/metrics?keys=loss/grad_norm,eval/rollout/reward/mean,unknown").json()
    assert found["steps"] == list(range(1, 9))
    assert found["series"]["loss/grad_norm"][1:4] == [1.5, None, 1.25]
    assert found["not_finite"] == {"loss/grad_norm": {"3": "nan"}}
    assert found["series"]["eval/rollout/reward/mean"] == [None] * 7 + [0.75], "two lines of one step are one"
    assert found["series"]["unknown"] == [None] * 8


def test_metrics_go_on_from_a_step_and_grow_with_the_file(root: Path, tmp_path: Path):
    shutil.copytree(root, tmp_path / "runs")
    here, record = client(tmp_path / "runs"), tmp_path / "runs" / "jira-b" / "metrics.jsonl"
    assert here.get("/runs/jira-b/metrics?from=3&keys=loss/total").json()["steps"] == [3]
    with record.open("a") as lines:
        lines.write('{"step": 4, "loss/total": 0.5, "word": "no number", "flag": true}\n{"step": 5, "loss/to')
    found = here.get("/runs/jira-b/metrics?from=3&keys=loss/total").json()
    assert (found["steps"], found["series"]["loss/total"][-1]) == ([3, 4], 0.5), "half a line is none yet"
    assert not {"word", "flag"} & set(here.get("/runs/jira-b/keys").json())


def test_rollouts_are_those_of_the_newest_step_unless_one_is_named(root: Path):
    here = client(root)
    newest, first = here.get("/runs/jira-a/rollouts").json(), here.get("/runs/jira-a/rollouts?step=1").json()
    assert (newest["step"], first["step"], first["total"]) == (8, 1, 5)
    assert first["outcomes"] == {"finished": 3, "truncated": 1, "infrastructure_failure": 1}
    row = first["rollouts"][0]
    assert (row["group"], row["index"], row["reward"], row["num_turns"], row["is_success"]) == (2, 0, 1.0, 2, True)
    assert here.get("/runs/jira-a/rollouts?label=eval").json()["step"] == 8


@pytest.mark.parametrize(
    ("wanted", "rewards"),
    [
        ("outcome=truncated", [0.5]),
        ("min_reward=0.5", [1.0, 0.5, 0.5]),
        ("max_reward=0.5", [0.25, 0.5, 0.5]),
        ("min_reward=0.3&max_reward=0.6&outcome=finished", [0.5]),
        ("outcome=screened", []),
        ("limit=2&offset=1", [0.25, 0.5]),
    ],
)
def test_rollouts_are_filtered_by_outcome_and_reward(root: Path, wanted: str, rewards: list[float]):
    """A rollout without a verdict is not one of reward 0."""
    found = client(root).get(f"/runs/jira-a/rollouts?{wanted}").json()
    assert [row["reward"] for row in found["rollouts"]] == rewards


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ("outcome=good", "outcome"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("min_reward=x", "min_reward"),
        ("label=other", "label"),
        ("step=x", "step"),
    ],
)
def test_a_wrong_filter_is_told_with_its_field(root: Path, wanted: str, field: str):
    assert refused(client(root).get(f"/runs/jira-a/rollouts?{wanted}"), 422, "invalid")["field"] == field


@pytest.mark.parametrize("place", ["1/train/2/9", "1/train/77/0", "99/train/2/0", "1/eval/2/0", "-1/train/2/0"])
def test_a_rollout_that_is_not_there_is_refused(root: Path, place: str):
    refused(client(root).get(f"/runs/jira-a/rollouts/{place}"), 404, "not_found")


def test_lines_that_are_no_rollouts_are_counted_and_left_out(root: Path, tmp_path: Path):
    shutil.copytree(root, tmp_path / "runs")
    file = tmp_path / "runs" / "jira-a" / "rollouts" / "train_000008.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(["{", "[]", "null", '{"index": 0}', "[" * 100_000, *lines]) + "\n")
    here = client(tmp_path / "runs")
    found = here.get("/runs/jira-a/rollouts").json()
    assert (found["num_broken"], found["total"]) == (5, 5)
    assert here.get("/runs/jira-a/rollouts/8/train/16/1").json()["rollout_id"] == "8-0-1", "places are of the file"


def test_a_rollout_whose_columns_do_not_fit_is_refused_in_words(root: Path, tmp_path: Path):
    shutil.copytree(root, tmp_path / "runs")
    file = tmp_path / "runs" / "jira-a" / "rollouts" / "train_000008.jsonl"
    record = json.loads(file.read_text().splitlines()[0])
    file.write_text(json.dumps(record | {"loss_mask": "01"}) + "\n")
    refused(client(tmp_path / "runs").get("/runs/jira-a/rollouts/8/train/16/0"), 422, "broken_record")


def test_hostile_text_comes_as_it_is_and_as_json(root: Path):
    answer = client(root).get("/runs/jira-a/rollouts/8/train/16/2")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["turns"][0]["text"] == HOSTILE


def test_two_runs_are_compared_by_series_figures_and_settings(root: Path):
    found = client(root).get("/compare", params={"a": "jira-a", "b": "jira-b"}).json()
    assert (found["a"]["steps"], found["b"]["steps"]) == (list(range(1, 9)), [1, 2, 3])
    assert set(found["a"]["series"]) == set(found["b"]["series"]) >= {"rollout/reward/mean", "loss/total"}
    figures = {row["key"]: row for row in found["final"]}
    assert figures["loss/total"]["difference"] == pytest.approx(0.1 / 3 - 0.1 / 8)
    assert figures["eval/rollout/reward/mean"]["b"] == 0.75
    assert {"key": "trainer.steps", "a": 8, "b": 3} in found["config"]

"""The console plays what the Gymnasium environments play."""

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from skyrl_nat.environments.gymnasium_import import gymnasium
from skyrl_nat.environments.jira.env import ENVIRONMENT_IDS
from skyrl_nat.service.routes import jira
from skyrl_nat.service.routes.errors import install_handlers
from skyrl_nat.service.routes.jira import jira_router


@pytest.fixture
def here() -> TestClient:
    app = FastAPI()
    install_handlers(app)
    app.include_router(jira_router())
    return TestClient(app)


def begin(here: TestClient, **wanted: Any) -> dict[str, Any]:
    answer = here.post("/jira/sessions", json={"environment": "JiraIssueResolution-v0", **wanted})
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.mark.parametrize("name", ENVIRONMENT_IDS)
@pytest.mark.parametrize("seed", [0, 7])
def test_a_seed_plays_the_same_episode_as_the_environment(here: TestClient, name: str, seed: int):
    """Same issue, masks, rewards and end, whatever is done; here every tool in turn."""
    environment = gymnasium.make(name)
    _, info = environment.reset(seed=seed)
    session = begin(here, environment=name, seed=seed)
    tools = [tool["name"] for tool in session["tools"]]
    assert session["issue"]["key"] == info["issue"]
    number, is_over = 0, False
    while not is_over:
        assert [tool["is_possible"] for tool in session["tools"]] == [bool(bit) for bit in info["action_mask"]]
        action = (3 * number + seed) % len(tools)
        _, reward, terminated, truncated, info = environment.step(action)
        session = here.post(f"/jira/sessions/{session['id']}/step", json={"action": tools[action]}).json()
        assert session["steps"][-1]["reward"] == pytest.approx(reward)
        assert (session["state"]["status"], session["terminated"], session["truncated"]) == (
            info["status"],
            terminated,
            truncated,
        )
        number, is_over = number + 1, terminated or truncated
    assert session["verdict"]["is_ok"] == info["is_success"]
    assert "; ".join(session["verdict"]["findings"]) == info["findings"]


def test_the_plan_earns_the_best_return_and_a_clean_verdict(here: TestClient):
    session = begin(here, seed=3)
    for tool in session["plan"]:
        session = here.post(f"/jira/sessions/{session['id']}/step", json={"action": tool}).json()
    assert session["return"] == pytest.approx(session["optimal_return"]) == pytest.approx(0.94)
    assert session["verdict"]["is_ok"] and session["is_goal_reached"]
    assert here.get(f"/jira/sessions/{session['id']}").json() == session


def test_a_tool_that_is_not_possible_says_why_and_changes_nothing(here: TestClient):
    session = begin(here)
    after = here.post(f"/jira/sessions/{session['id']}/step", json={"action": "resolve_issue"}).json()
    assert after["state"] == session["state"]
    assert after["steps"][0]["reason"] == "not from status Open" and after["steps"][0]["reward"] < 0


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"environment": "Other-v0"}, "environment"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"issue": "NO-1"}, "issue"),
        ({"steps": 3}, "steps"),
        ({"environment": None}, "environment"),
    ],
)
def test_a_wrong_beginning_is_told_with_its_field(here: TestClient, wanted: dict[str, Any], field: str):
    answer = here.post("/jira/sessions", json={"environment": "JiraIssueResolution-v0", **wanted})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)


def test_wrong_steps_are_refused(here: TestClient):
    session = begin(here, issue="APP-7")
    place = f"/jira/sessions/{session['id']}/step"
    assert here.post(place, json={"action": "rm -rf"}).json()["error"]["field"] == "action"
    assert here.post("/jira/sessions/none/step", json={"action": "get_issue"}).status_code == 404
    while not (session := here.post(place, json={"action": "get_issue"}).json()).get("verdict"):
        pass
    over = here.post(place, json={"action": "get_issue"})
    assert (over.status_code, over.json()["error"]["code"]) == (409, "over")
    assert len(session["steps"]) == session["max_steps"]


def test_sessions_do_not_grow_without_end(here: TestClient, monkeypatch: pytest.MonkeyPatch):
    """The one that was used longest ago makes room."""
    monkeypatch.setattr(jira, "MOST_SESSIONS", 3)
    first, second, third = (begin(here)["id"] for _ in range(3))
    here.get(f"/jira/sessions/{first}")
    begin(here)
    found = [here.get(f"/jira/sessions/{one}").status_code for one in (first, second, third)]
    assert found == [200, 404, 200]


def test_what_can_be_played_is_listed(here: TestClient):
    found = here.get("/jira/environments").json()
    assert [f"skyrl_nat/{one['id']}" for one in found] == list(ENVIRONMENT_IDS)
    assert all(len(one["issues"]) == 8 for one in found)

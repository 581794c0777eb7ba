import pytest
from planner_server import KEY, KEY_NAME


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_NAME, KEY)


@pytest.fixture(params=["gemini", "openai"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param

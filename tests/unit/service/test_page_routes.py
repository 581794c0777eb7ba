"""The page comes from this process alone, and nothing else than its own files may run in it."""

import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from skyrl_nat.service.routes.errors import install_handlers
from skyrl_nat.service.routes.page import STATIC, page_router

PARTS = sorted(path.name for path in STATIC.iterdir() if path.name != "index.html")


@pytest.fixture(scope="module")
def here() -> TestClient:
    app = FastAPI()
    install_handlers(app)
    app.include_router(page_router())
    return TestClient(app)


def test_the_page_loads_only_its_own_files(here: TestClient):
    answer = here.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    for place in re.findall(r'(?:src|href)="([^"#]+)"', answer.text):
        assert here.get(f"/{place}").status_code == 200
    assert not re.search(r"<script>|\son\w+=|style=", answer.text), "the policy would refuse what is written inline"


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_served_with_its_type_and_needs_no_other_host(here: TestClient, name: str):
    answer = here.get(f"/static/{name}")
    assert answer.status_code == 200 and answer.headers["x-content-type-options"] == "nosniff"
    kinds = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    assert answer.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
    urls = set(re.findall(r"https?://[\w./-]+", answer.text))
    assert urls <= {"http://www.w3.org/2000/svg"}
    for module in re.findall(r'from "\./([^"]+)"', answer.text):
        assert module in PARTS


@pytest.mark.parametrize("name", PARTS)
def test_no_part_reads_text_as_markup(name: str):
    """Rollouts are written by a model."""
    text = (STATIC / name).read_text(encoding="utf-8")
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser", "srcdoc"):
        assert way not in text
    assert text.count("\n") <= 400


@pytest.mark.parametrize("name", ["nothing.js", "..%2fpage.py", "%2e%2e%2fsettings.py", "base.css%00", "index.html/"])
def test_nothing_else_is_served(here: TestClient, name: str):
    answer = here.get(f"/static/{name}", follow_redirects=False)
    assert answer.status_code in (404, 307)
    assert "import" not in answer.text

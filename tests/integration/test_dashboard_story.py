"""One story by clicks and keys in a real Chromium, with a real service and real jobs: from the form to a token."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CONTRAST, chromium, window
from playwright.sync_api import Page, expect
from service_parts import TOKEN
from service_process import FINAL, ServiceProcess, running_service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
STEPS = 40
TRAINED_MS = 120_000
NOTHING = "\N{EN DASH}"
COUNT_POINTS = """() => {
  window.seen = new Set();
  setInterval(() => {
    for (const chart of document.querySelectorAll('svg[aria-label^="loss/total, "]'))
      window.seen.add(parseInt(chart.getAttribute("aria-label").slice(12)));
  }, 50);
}"""


@pytest.fixture(scope="module")
def running() -> Iterator[ServiceProcess]:
    with running_service(max_running=1) as service:
        yield service


@pytest.fixture
def page(running: ServiceProcess) -> Iterator[Page]:
    """A window of somebody who has shown the token."""
    with chromium() as browser, window(browser) as found:
        found.goto(f"http://127.0.0.1:{running.port}/?token={TOKEN}")
        yield found
    for job in running.ask("/training")["jobs"]:
        running.ask(f"/training/{job['id']}/cancel", {})
        running.wait_job(job["id"], *FINAL)


def start(page: Page, **fields: str) -> None:
    """Fill in the form and send it."""
    for name, text in fields.items():
        page.locator(f"#f-{name}").fill(text)
    page.get_by_role("button", name="Start", exact=True).click()


def look(page: Page, folder: Path, name: str) -> None:
    """Keep what is seen in both themes; all of it must be readable."""
    for theme in ("dark", "light"):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        page.wait_for_timeout(150)
        assert page.evaluate(CONTRAST) == [], (name, theme)
        page.screenshot(path=folder / f"{name}-{theme}.png", full_page=True)


def facts(page: Page) -> dict[str, str]:
    """Return all that is told of the chosen token."""
    card = page.locator(".token-card")
    return dict(zip(card.locator("dt").all_inner_texts(), card.locator("dd").all_inner_texts(), strict=True))


def submit_two(page: Page, folder: Path) -> None:
    """Be refused by the page, then by the service; then one job runs and one waits."""
    expect(page.get_by_text("No job has been submitted to this service yet.")).to_be_visible()
    page.get_by_role("button", name="Train jira", exact=True).click()
    assert page.evaluate("[document.activeElement.id, document.activeElement.value]") == ["f-environment", "jira"]
    expect(page.locator("#f-algorithm")).to_have_value("grpo")
    start(page, steps="0")
    expect(page.locator("#f-steps-fault")).to_have_text("Steps must be a whole number from 1 to 10,000,000.")
    start(page, steps=str(STEPS), name="first", overrides="optimizer.lr=-1")
    expect(page.locator("#f-overrides-fault")).to_contain_text("optimizer.lr must be >= 0, got -1.0")
    assert page.evaluate("document.activeElement.id") == "f-overrides"
    look(page, folder, "refused")
    start(page, overrides="")
    expect(page.get_by_text("first is ")).to_be_visible()
    start(page, steps="1000000", name="second")
    expect(page.get_by_role("row", name="second")).to_contain_text("pending")
    look(page, folder, "queued")
    page.get_by_role("row", name="second").click()
    expect(page.get_by_text("It waits for its turn")).to_be_visible()


def watch(page: Page, folder: Path) -> None:
    """See the first job run, its curves grow, and its end."""
    page.get_by_role("link", name="Overview").click()
    page.evaluate(COUNT_POINTS)
    page.get_by_role("row", name="first").click()
    expect(page.locator(".badge", has_text="running")).to_be_visible()
    expect(page.get_by_role("img", name=f"loss/total, {STEPS} points")).to_be_visible(timeout=TRAINED_MS)
    assert page.evaluate("window.seen.size") > 1, "points must come while it trains"
    expect(page.locator(".badge", has_text="succeeded")).to_be_visible(timeout=TRAINED_MS)
    look(page, folder, "run")


def read_tokens(page: Page, folder: Path) -> None:
    """See what is known of a token that was sampled, and of one that was not."""
    page.get_by_role("link", name="Rollouts").last.click()
    expect(page.get_by_role("heading", name=f"4 rollouts of step {STEPS}")).to_be_visible()
    look(page, folder, "rollouts")
    page.locator("tbody tr").first.click()
    page.locator(".tokens .by-policy").first.click()
    sampled = facts(page)
    assert (sampled["Written by"], sampled["In the loss"], sampled["Clipped"]) == ("policy", "yes", "no")
    assert float(sampled["Rollout log-prob"]) == pytest.approx(float(sampled["Trainer log-prob"]), abs=1e-3)
    assert float(sampled["Rollout log-prob"]) < 0
    assert float(sampled["Advantage"]) == 0, "all rollouts of a random model earn the same"
    look(page, folder, "viewer")
    page.keyboard.press("Home")
    first = facts(page)
    assert (first["Written by"], first["In the loss"]) == ("template", "no")
    assert {first[name] for name in ("Rollout log-prob", "Trainer log-prob", "Advantage", "Clipped")} == {NOTHING}


def cancel(page: Page, folder: Path) -> None:
    """Cancel the second job, which runs by now, by keys alone."""
    page.keyboard.press("g")
    page.keyboard.press("o")
    second = page.get_by_role("row", name="second")
    expect(second).to_contain_text("running")
    page.get_by_role("button", name="Cancel second").focus()
    page.keyboard.press("Enter")
    expect(second.locator(".badge", has_text="cancelled")).to_be_visible(timeout=TRAINED_MS)
    assert page.evaluate("document.activeElement.closest('tr').innerText").startswith("second"), "the focus stays"
    look(page, folder, "cancelled")


def test_a_job_is_started_watched_and_read_to_its_tokens_and_another_one_is_cancelled(page: Page, tmp_path: Path):
    refused: list[tuple[int, str]] = []
    page.on("response", lambda got: refused.append((got.status, got.url)) if got.status >= 400 else None)
    submit_two(page, tmp_path)
    watch(page, tmp_path)
    read_tokens(page, tmp_path)
    cancel(page, tmp_path)
    assert [(status, url.rpartition("/train/")[2]) for status, url in refused] == [(422, "jira")]


def test_a_job_that_failed_says_why_and_shows_its_log(page: Page, tmp_path: Path):
    start(page, name="broken", steps="1", overrides="model.path=nowhere")
    broken = page.get_by_role("row", name="broken")
    expect(broken).to_contain_text("failed", timeout=TRAINED_MS)
    look(page, tmp_path, "failed")
    broken.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".head .bad:not(.badge)")).to_contain_text("model.path must")
    look(page, tmp_path, "failed-run")
    page.get_by_role("link", name="Log").click()
    expect(page.get_by_text("skyrl-nat: ")).to_be_visible()

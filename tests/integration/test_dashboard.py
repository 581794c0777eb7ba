"""The page in a real headless Chromium: clicks, keys, both themes, live curves, and text that means harm."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from browser import CONTRAST, chromium, window
from dashboard_service import Jobs, serve
from playwright.sync_api import Browser, Page, expect
from shown_runs import HOSTILE, metrics_of, write_run

from skyrl_nat.json_lines import append_lines, encode_line, open_lines

pytestmark = pytest.mark.slow
STEPS = 8
VIEWER = f"#/rollout/jira-a/{STEPS}/train/{2 * STEPS}"
VIEWS = ["#/", "#/run/jira-a", "#/rollouts/jira-a", f"{VIEWER}/2", "#/compare?a=jira-a&b=jira-b", "#/jira"]


@dataclass
class Site:
    """A served dashboard with two runs."""

    url: str
    root: Path
    jobs: Jobs


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("written")
    write_run(root, "jira-a", steps=STEPS)
    write_run(root, "jira-b", steps=5, slope=0.2, records_tokens=False)
    return root


@pytest.fixture
def site(written: Path, tmp_path: Path) -> Iterator[Site]:
    shutil.copytree(written, tmp_path / "runs")
    jobs = Jobs()
    with serve(tmp_path / "runs", jobs) as url:
        yield Site(url, tmp_path / "runs", jobs)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with window(browser) as found:
        yield found


def go(page: Page, site: Site, view: str) -> None:
    page.goto(f"{site.url}/{view}")
    page.wait_for_selector("main h1")
    expect(page.get_by_text("Loading…")).to_have_count(0)


def test_every_view_is_reached_by_clicks(page: Page, site: Site):
    """Overview, run, rollouts with a filter, one token, comparison, console."""
    site.jobs.add("jira-a", "succeeded", step=STEPS, steps=STEPS)
    go(page, site, "")
    page.get_by_role("row", name="jira-b").click()
    expect(page.get_by_role("img", name="loss/total, 5 points")).to_be_visible()
    page.get_by_label("Run", exact=True).select_option("jira-a")
    expect(page.get_by_role("heading", name="jira-a")).to_be_visible()
    page.get_by_role("button", name="Log axis").click()
    expect(page.get_by_role("button", name="Log axis")).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Find", exact=True).fill("gpu/")
    expect(page.get_by_role("img", name="gpu/idle/share, 8 points")).to_be_visible()
    expect(page.get_by_role("img", name="rollout 40.0 %, train 30.0 %")).to_be_visible()
    page.get_by_role("link", name="Rollouts").last.click()
    expect(page.get_by_role("heading", name=f"5 rollouts of step {STEPS}")).to_be_visible()
    page.get_by_label("Outcome").select_option("truncated")
    expect(page.get_by_role("heading", name=f"1 rollout of step {STEPS}")).to_be_visible()
    page.get_by_role("button", name="Clear filter").click()
    page.get_by_label("Reward at most").fill("0.3")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=f"1 rollout of step {STEPS}")).to_be_visible()
    page.get_by_role("row", name="WEB-11").click()
    expect(page.get_by_text("not used: resolve_issue, close_issue").last).to_be_visible()
    page.locator(".tokens .by-policy").first.click()
    detail = page.locator(".token-card")
    for text in ("policy", "Rollout log-prob", "Trainer log-prob", "Advantage", "Clipped", "Policy version"):
        expect(detail.get_by_text(text, exact=True)).to_be_visible()
    page.get_by_label("Colour", exact=True).select_option("advantage")
    assert page.locator(".tokens .in-loss").first.evaluate("node => node.style.getPropertyValue('--heat')") == "40%"
    page.get_by_role("button", name="Text", exact=True).click()
    expect(page.get_by_text("Answer with one tool.")).to_be_visible()
    page.get_by_role("link", name="Compare").click()
    page.get_by_label("Run A").select_option("jira-a")
    page.get_by_label("Run B").select_option("jira-b")
    expect(page.get_by_role("row", name="trainer.steps 8 5")).to_be_visible()
    page.get_by_role("button", name="Swap").click()
    expect(page.get_by_role("row", name="trainer.steps 5 8")).to_be_visible()


def test_the_console_plays_an_episode_to_its_verdict(page: Page, site: Site):
    go(page, site, "#/jira")
    page.get_by_label("Issue").select_option("APP-7")
    page.get_by_role("button", name="New episode").click()
    expect(page.get_by_role("heading", name="APP-7: Rename the export button")).to_be_visible()
    page.get_by_role("button", name="resolve_issue").click()
    expect(page.get_by_role("row", name="resolve_issue not from status Open")).to_be_visible()
    assert page.evaluate("document.activeElement.dataset.tool") == "resolve_issue", "the focus stays on the tool"
    page.get_by_role("button", name="New episode").click()
    for tool in ("get_issue", "assign_issue", "start_progress", "add_comment", "resolve_issue", "close_issue"):
        page.get_by_role("button", name=tool).click()
        expect(page.get_by_role("row", name=tool)).to_be_visible()
    expect(page.locator(".badge.good", has_text="solved")).to_be_visible()
    expect(page.locator("dd", has_text="0.94")).to_have_count(2)


def test_the_form_says_what_is_wrong_before_and_after_it_asks(page: Page, site: Site):
    go(page, site, "")
    for name, wrong in {
        "Steps": "0",
        "Seed": "-1",
        "Name (may be left out)": "no spaces",
        "Overrides": "optimizer.lr",
    }.items():
        page.get_by_label(name).fill(wrong)
    page.get_by_role("button", name="Start", exact=True).click()
    for text in (
        "Steps must be a whole number",
        "The seed must be",
        "A name has letters",
        "Each line must be key=value",
    ):
        expect(page.get_by_text(text).first).to_be_visible()
    assert page.evaluate("document.activeElement.id") == "f-steps"
    assert site.jobs.asked == []
    page.get_by_label("Steps").fill("3")
    page.get_by_label("Seed").fill("7")
    page.get_by_label("Name (may be left out)").fill("mine")
    page.get_by_label("Overrides").fill("optimizer.lr=-1")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("#f-overrides-fault")).to_have_text("optimizer.lr must be > 0, got -1. Raise it")
    assert page.evaluate("document.activeElement.id") == "f-overrides"
    page.get_by_label("Overrides").fill("optimizer.lr=1e-4\n\n trainer.staleness=1 ")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_text("mine is pending.")).to_be_visible()
    expect(page.get_by_role("row", name="mine")).to_be_visible()
    first, last = site.jobs.asked
    assert last["overrides"] == ["optimizer.lr=1e-4", "trainer.staleness=1"]
    assert (last["environment"], last["algorithm"], last["experiment"]) == ("jira", "grpo", None)
    assert (last["steps"], last["seed"], last["name"], last["resume"]) == (3, 7, "mine", False)
    assert len(last["key"]) >= 32 and last["key"] != first["key"]
    page.get_by_role("button", name="Cancel mine").click()
    expect(page.locator(".badge", has_text="cancelled")).to_be_visible()


def test_all_of_it_works_without_a_pointer(page: Page, site: Site):
    go(page, site, "")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("l")
    expect(page.get_by_role("heading", name="Rollouts", exact=True)).to_be_visible()
    page.get_by_role("button", name="Clear filter").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.rowIndex") == 2
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Rollout", exact=True)).to_be_visible()
    page.get_by_label("Colour", exact=True).focus()
    page.keyboard.press("Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate("document.activeElement.dataset.at") == "0" and page.evaluate(outline) == "solid"
    page.keyboard.press("End")
    expect(page.get_by_role("heading", name="Token 81", exact=True)).to_be_visible()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")
    assert int(page.evaluate("document.activeElement.dataset.at")) < 79
    page.keyboard.press("]")
    expect(page.get_by_text("3 of 5")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("r")
    chart = page.get_by_role("img", name="loss/total")
    chart.focus()
    page.keyboard.press("Home")
    expect(page.get_by_text("step 1: 0.1", exact=True)).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("step 2: 0.05", exact=True)).to_be_visible()


def test_curves_grow_while_a_job_trains(page: Page, site: Site):
    """Told by the job's events, not by looking again: that would be much later."""
    job = site.jobs.add("jira-b", "running", step=5, steps=9)
    go(page, site, "#/run/jira-b")
    expect(page.get_by_role("img", name="loss/total, 5 points")).to_be_visible()
    record = open_lines(site.root / "jira-b" / "metrics.jsonl")
    append_lines(record, encode_line({"step": 6, **metrics_of(6, 0.2)}))
    record.close()
    site.jobs.events[job["id"]] = [("metrics", {"step": 6})] * 3
    expect(page.get_by_role("img", name="loss/total, 6 points")).to_be_visible(timeout=12_000)
    site.jobs.events[job["id"]].append(("state", job | {"state": "failed", "reason": "the disk is full"}))
    expect(page.get_by_text("the disk is full")).to_be_visible()
    expect(page.get_by_role("img", name="loss/total, 6 points")).to_be_visible()
    job["state"] = "cancelled"


def test_what_a_model_wrote_is_text_and_never_more(page: Page, site: Site):
    run = site.root / "<img src=x onerror='window.hacked=1'>"
    shutil.copytree(site.root / "jira-a", run)
    file = run / "rollouts" / f"train_{STEPS:06d}.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    evil = {"task_id": HOSTILE, "reason": HOSTILE, "findings": [HOSTILE], "suspicions": [HOSTILE]}
    evil |= {
        "reward_parts": {HOSTILE: 0.5},
        "stages": [dict.fromkeys(("name", "evidence"), HOSTILE) | {"is_ok": False, "seconds": None}],
    }
    file.write_text("".join(json.dumps(line | evil) + "\n" for line in lines))
    site.jobs.add(HOSTILE, "failed", reason=HOSTILE, environment=HOSTILE, run=run.name)
    go(page, site, "")
    page.get_by_role("row", name="window.hacked").first.click()
    expect(page.get_by_role("heading", name=run.name)).to_be_visible()
    page.get_by_role("link", name="Rollouts").last.click()
    page.get_by_role("row", name="window.hacked").nth(2).click()
    expect(page.locator(".tokens").first).to_contain_text("<script>window.hacked")
    page.get_by_role("button", name="Text", exact=True).click()
    expect(page.locator(".from-policy").first).to_contain_text("\\u{202e}")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script, main iframe").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_can_be_read_in_both_themes(browser: Browser, page: Page, site: Site, theme: str):
    """Contrast of at least 4.5, as the system has it and by the button; nothing wider than a phone."""
    site.jobs.add("jira-a", "failed", reason="the disk is full")
    site.jobs.add("jira-b", "running", step=5)
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    for view in VIEWS:
        go(page, site, view)
        page.wait_for_timeout(150)
        assert page.evaluate(CONTRAST) == [], view
        if "rollout/" in view:
            for colour in ("advantage", "rollout_logprob", "difference", "clipped", "policy_version"):
                page.get_by_label("Colour", exact=True).select_option(colour)
                assert page.evaluate(CONTRAST) == [], colour
    page.set_viewport_size({"width": 375, "height": 800})
    for view in VIEWS:
        go(page, site, view)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, view


def test_the_theme_that_was_chosen_stays(page: Page, site: Site):
    go(page, site, "")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    page.keyboard.press("t")
    assert page.evaluate(ground) == light
    page.get_by_role("button", name="Colour theme: light").click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    assert page.evaluate(ground) == dark


def test_what_is_not_there_is_said_with_a_way_on(page: Page, site: Site):
    """Nothing yet, something wrong, no answer, no such view."""
    for run in ("jira-a", "jira-b"):
        shutil.rmtree(site.root / run)
    for view in ("#/run", "#/rollouts", "#/compare"):
        go(page, site, view)
        expect(page.get_by_text("There are no runs yet.")).to_be_visible()
    site.jobs.is_failing = True
    go(page, site, "")
    expect(page.get_by_role("alert")).to_contain_text("the catalogue must be readable")
    site.jobs.is_failing = False
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text("No job has been submitted to this service yet.")).to_be_visible()
    go(page, site, "#/run/nobody")
    expect(page.get_by_role("alert")).to_contain_text("the run must be one of GET /runs")
    page.context.set_offline(True)
    page.evaluate("location.hash = '#/jira'")
    expect(page.get_by_role("alert")).to_contain_text("The service does not answer")
    page.context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Tools")).to_be_visible()
    page.evaluate("location.hash = '#/nowhere'")
    expect(page.get_by_text("There is no such view.")).to_be_visible()

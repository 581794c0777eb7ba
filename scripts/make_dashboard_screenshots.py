"""Take the screenshots of docs/dashboard.md in a headless Chromium.

usage: make_dashboard_screenshots.py URL RUN OUT      (URL of a dashboard, RUN with rollouts of step 8, folder for PNGs)
"""

import io
import sys
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

COLOURS = 256
"""Of a PNG: pages have few, and files stay small."""
Act = Callable[[Page], object]


def nothing(page: Page) -> None:
    """Leave the page as it is."""


def fill_wrongly(page: Page) -> None:
    """Submit a form in which most is wrong."""
    for name, wrong in {"Steps": "0", "Name (may be left out)": "no spaces", "Overrides": "optimizer.lr"}.items():
        page.get_by_label(name).fill(wrong)
    page.get_by_role("button", name="Start", exact=True).click()


def choose_token(page: Page) -> None:
    """Choose a token that was clipped."""
    page.locator(".tokens .clipped").nth(1).click()


def colour_by_advantage(page: Page) -> None:
    """Colour tokens by another column."""
    page.get_by_label("Colour", exact=True).select_option("advantage")
    choose_token(page)


def play(page: Page) -> None:
    """Play an episode with one mistake."""
    for tool in ("get_issue", "resolve_issue", "assign_issue", "start_progress", "add_comment", "resolve_issue"):
        page.get_by_role("button", name=tool).click()
        page.wait_for_timeout(400)
    page.get_by_role("button", name="close_issue").click()
    page.get_by_role("heading", name="Verdict").wait_for()


def shots(run: str) -> list[tuple[str, str, str, Act]]:
    """Return name, view, theme and what is done before each screenshot."""
    viewer = f"#/rollout/{run}/8/train/16"
    return [
        ("overview", "#/", "light", nothing),
        ("overview-dark", "#/", "dark", nothing),
        ("form-faults", "#/", "light", fill_wrongly),
        ("run", f"#/run/{run}", "light", nothing),
        ("run-dark", f"#/run/{run}", "dark", nothing),
        ("run-log", f"#/run/{run}", "light", lambda page: page.get_by_role("button", name="Log axis").click()),
        ("rollouts", f"#/rollouts/{run}?step=8", "light", nothing),
        ("rollouts-none", f"#/rollouts/{run}?step=8&outcome=screened", "light", nothing),
        ("viewer", f"{viewer}/2", "light", choose_token),
        ("viewer-dark", f"{viewer}/0", "dark", choose_token),
        ("viewer-advantage", f"{viewer}/2", "light", colour_by_advantage),
        (
            "viewer-text",
            f"{viewer}/2",
            "light",
            lambda page: page.get_by_role("button", name="Text", exact=True).click(),
        ),
        ("compare", f"#/compare?a={run}", "light", nothing),
        ("compare-dark", f"#/compare?a={run}", "dark", nothing),
        ("jira", "#/jira", "light", nothing),
        ("jira-verdict", "#/jira", "dark", play),
        ("keys", "#/jira", "light", lambda page: page.keyboard.press("?")),
        ("error", "#/run/nobody", "light", nothing),
        ("phone", f"{viewer}/2", "light", nothing),
    ]


def main(url: str, run: str, out: Path) -> None:
    """Write one PNG after the other."""
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name, view, theme, act in shots(run):
            size = {"width": 390 if name == "phone" else 1280, "height": 800}
            context = browser.new_context(viewport=size, color_scheme="dark" if theme == "dark" else "light")
            page = context.new_page()
            page.goto(f"{url}/{view}")
            page.wait_for_selector("main h1")
            page.wait_for_timeout(500)
            act(page)
            page.wait_for_timeout(300)
            data = page.screenshot(full_page=name != "keys")
            Image.open(io.BytesIO(data)).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(
                out / f"{name}.png", optimize=True
            )
            context.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

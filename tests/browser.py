"""A real headless Chromium, from Debian where it is not installed."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import debian
from playwright.sync_api import Browser, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
"""Returns every visible text whose contrast is below 4.5."""


def install() -> str:
    """Return where Chromium is, after installing it where it is missing; who may not, skips."""
    if not (found := _found()):
        debian.install("Chromium", "chromium", "fonts-dejavu-core")
        found = _found()
    assert found, f"none of {NAMES} is there after an installation that succeeded"
    return found


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Run the browser; without a sandbox of its own, which root has none of in a container."""
    path = install()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def window(browser: Browser) -> Iterator[Page]:
    """Have a new window; nothing may be complained of in its console, refusals that a test provokes set apart."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(30_000)
    expect.set_options(timeout=30_000)
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert not [text for text in complaints if "Failed to load resource" not in text], complaints


def _found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)

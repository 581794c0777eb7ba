"""A real headless Chromium, from Debian where it is not installed."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
"""Returns every visible text whose contrast is below 4.5."""


def install() -> str:
    """Return where Chromium is, after installing it where it is missing; who may not, skips."""
    if not (found := _found()):
        if os.geteuid() or not shutil.which("apt-get"):
            pytest.skip("Chromium is not installed, and only root on Debian can install it here")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], check=True, env=quiet)
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
        subprocess.run(command, check=True, env=quiet)
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


def _found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)

"""Programs of Debian's packages, for tests that need the real ones."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

QUIET = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}


def require_apt(name: str) -> None:
    """Bring the package lists up to date; who may not, skips.

    Args:
        name: What is missing, for people.
    """
    if os.geteuid() or not shutil.which("apt-get"):
        pytest.skip(f"{name} is not installed, and only root on Debian can install it here")
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=QUIET)


def install(name: str, *packages: str) -> None:
    """Install packages with what they need; who may not, skips."""
    require_apt(name)
    subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], check=True, env=QUIET)


def unpack(name: str, package: str, folder: Path) -> None:
    """Unpack a package without what it needs, and start nothing of it; who may not, skips."""
    require_apt(name)
    subprocess.run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package], check=True, cwd=folder)
    [file] = folder.glob(f"{package}_*.deb")
    subprocess.run(["dpkg", "-x", str(file), str(folder)], check=True)

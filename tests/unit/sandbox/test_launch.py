"""The sandbox's interpreter is found in a checkout, beside an installed package, or where it is named."""

import sys
from pathlib import Path

import pytest

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.errors import ConfigError
from skyrl_nat.sandbox import launch


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Path:
    """Let the package lie in a virtual environment; return the folder that this lies in."""
    package = tmp_path / "venv/lib/python3.11/site-packages/skyrl_nat/sandbox/launch.py"
    monkeypatch.setattr(launch, "__file__", str(package))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.delenv(launch.PYTHON_VARIABLE, raising=False)
    return tmp_path


def make_python(folder: Path) -> Path:
    python = folder / "bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    return python


def test_it_lies_beside_the_environment_of_an_installed_package(installed):
    python = make_python(installed / ".venv-nat")
    assert launch.find_python(SandboxConfig()) == python


def test_it_lies_in_the_checkout(installed, monkeypatch):
    monkeypatch.setattr(launch, "__file__", str(installed / "checkout/skyrl_nat/sandbox/launch.py"))
    python = make_python(installed / "checkout/.venv-nat")
    make_python(installed / ".venv-nat")
    assert launch.find_python(SandboxConfig()) == python


def test_what_is_named_wins_and_what_is_not_there_is_told(installed, monkeypatch):
    make_python(installed / ".venv-nat")
    python = make_python(installed / "other")
    assert launch.find_python(SandboxConfig(python=str(python))) == python
    monkeypatch.setenv(launch.PYTHON_VARIABLE, str(installed / "none"))
    with pytest.raises(ConfigError, match=r"none does not exist\. Make it with"):
        launch.find_python(SandboxConfig())


def test_where_none_is_the_command_that_makes_it_makes_it_where_it_is_looked_for(installed):
    with pytest.raises(ConfigError) as caught:
        launch.find_python(SandboxConfig())
    assert f"`python -m venv {installed / '.venv-nat'}`" in str(caught.value)

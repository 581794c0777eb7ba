"""Which profile is taken, and what is said where none holds."""

import logging
import os
import sys
from pathlib import Path

import pytest

from skyrl_nat.config.environment import SandboxBackend, SandboxConfig
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox import profiles
from skyrl_nat.sandbox.bubblewrap import BubblewrapSandbox
from skyrl_nat.sandbox.container import ContainerSandbox, container_options, make_root
from skyrl_nat.sandbox.landlock import LandlockSandbox
from skyrl_nat.sandbox.self_test import SelfTest
from skyrl_nat.sandbox.unsafe import UnsafeSandbox

GOOD = {
    "uid": 1000,
    "capabilities": 0,
    "has_filter": True,
    "environment": ["PATH", "HOME"],
    "read": [],
    "written": ["/tmp"],
    "has_signalled": False,
    "num_visible": 2,
    "reached": [],
    "is_work_writable": True,
    "is_interpreter_readable": True,
}


@pytest.fixture(autouse=True)
def fresh_choice():
    profiles.choose.cache_clear()
    yield
    profiles.choose.cache_clear()


def let_hold(monkeypatch: pytest.MonkeyPatch, **reasons: str) -> list[type]:
    tried = []

    def try_out(backend, config):
        tried.append(backend)
        return reasons.get(backend.__name__, "")

    monkeypatch.setattr(profiles, "try_out", try_out)
    return tried


def test_auto_takes_the_first_that_holds_and_says_why_not_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = let_hold(monkeypatch, BubblewrapSandbox="no user namespaces")
    with caplog.at_level(logging.INFO):
        opened = profiles.open_sandbox(SandboxConfig(python=sys.executable))
        profiles.open_sandbox(SandboxConfig(python=sys.executable))
    assert isinstance(opened, LandlockSandbox)
    assert tried == [BubblewrapSandbox, LandlockSandbox]  # once for the whole process
    assert "landlock holds; bubblewrap does not: no user namespaces" in caplog.text


def test_where_none_holds_the_error_names_all_and_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    let_hold(monkeypatch, BubblewrapSandbox="one", LandlockSandbox="two", ContainerSandbox="three")
    with pytest.raises(SandboxError, match=r"one \| landlock does not: two \| container.*three.*backend=unsafe"):
        profiles.open_sandbox(SandboxConfig(python=sys.executable))


def test_unsafe_is_only_taken_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert UnsafeSandbox not in [profiles.BACKENDS[name] for name in profiles.AUTOMATIC]
    tried = let_hold(monkeypatch)
    opened = profiles.open_sandbox(SandboxConfig(python=sys.executable, backend=SandboxBackend.unsafe))
    assert isinstance(opened, UnsafeSandbox)
    assert tried == []


def test_a_sandbox_that_does_not_confine_is_refused() -> None:
    class Open(UnsafeSandbox):
        is_confined = True

    reason = profiles.try_out(Open, SandboxConfig(python=sys.executable))
    assert "reads files of the machine" in reason
    assert "kills processes of the machine" in reason
    assert "tcp of the machine" in reason


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"uid": 0}, "runs as root"),
        ({"capabilities": 1 << 21}, "capabilities"),
        ({"has_filter": False}, "system calls"),
        ({"reached": ["udp"]}, "network: udp"),
        ({"environment": ["WANDB_API_KEY"]}, "WANDB_API_KEY"),
        ({"read": ["/etc/shadow"]}, "/etc/shadow"),
        ({"num_visible": 80}, "80 processes"),
        ({"is_work_writable": False}, "work folder"),
        ({"is_interpreter_readable": False}, "interpreter"),
        ({"is_interpreter_readable": None, "read": None}, "reads files"),
    ],
)
def test_each_fault_of_a_probe_is_named(change: dict, fault: str) -> None:
    with SelfTest() as test:
        assert test.faults(GOOD) == []
        found = test.faults(GOOD | change)
    assert fault in "; ".join(found)


def test_what_an_open_profile_let_the_probe_write_is_taken_away() -> None:
    with SelfTest() as test:
        arguments = test.arguments()
        written = [Path(folder, arguments["name"]) for folder in arguments["folders"] if os.access(folder, os.W_OK)]
        for path in written:
            path.write_text("x")
        assert Path.home() in [path.parent for path in written]
        assert "it writes outside" in "; ".join(test.faults(GOOD))
    assert [path for path in written if path.exists()] == []


def test_container_options_give_nothing_away(tmp_path: Path) -> None:
    mounted = {"/usr": "/usr", sys.base_prefix: sys.base_prefix}
    root = make_root(str(tmp_path), mounted)
    assert (Path(root) / sys.base_prefix.strip("/")).is_dir()
    for runtime, is_root in (("podman", True), ("podman", False), ("docker", True)):
        options = container_options(SandboxConfig(), runtime, mounted, "name", is_root=is_root)
        line = " ".join(options)
        assert "--network none --read-only" in line
        assert "--cap-drop ALL" in line
        assert "no-new-privileges" in line
        assert all(
            word.endswith(":ro") for word, before in zip(options[1:], options, strict=False) if before == "--volume"
        )
        assert ("--cap-add" in line) == is_root
        assert ("--rootfs" in line) == (runtime == "podman")


def test_docker_needs_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if name == "docker" else None)
    with pytest.raises(SandboxError, match="docker with an image"):
        ContainerSandbox(SandboxConfig(python=sys.executable))
    ContainerSandbox(SandboxConfig(python=sys.executable, container_image="python:3.11"))

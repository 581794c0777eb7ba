"""What a sandbox server is started with: interpreter, environment, folders, settings."""

import json
import os
import random
import sys
from pathlib import Path

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.errors import ConfigError, SandboxError

INSIDE_FOLDER = Path(__file__).parent / "inside"
PRELOAD = (
    "nat.runtime.loader",
    "nat.builder.workflow_builder",
    "nat.plugin_api",
    "nat.test",
    "pytest",
)
"""What every NAT job needs; imported once by each server."""
BARE_PRELOAD = ("json",)
"""For a server that only has to show that it holds."""
PYTHON_VARIABLE = "SKYRL_NAT_SANDBOX_PYTHON"
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin")
SYSTEM_FILES = ("/etc/ld.so.cache",)
_MAX_ENTRIES = 20_000
_FIRST_UID, _NUM_UIDS = 1_900_000_000, 200_000_000
"""Above what distributions, directories and systemd's containers give out."""
_FIRST_SMALL_UID, _NUM_SMALL_UIDS = 20_000, 40_000


def find_python(config: SandboxConfig) -> Path:
    """Return the interpreter of the sandbox's virtual environment.

    Raises:
        ConfigError: There is none.
    """
    named = config.python or os.environ.get(PYTHON_VARIABLE, "")
    # In a checkout both are the same; an installed package lies below its virtual environment.
    folders = (Path(__file__).resolve().parents[2], Path(sys.prefix).parent)
    places = [Path(named)] if named else [folder / ".venv-nat/bin/python" for folder in folders]
    path = next((place for place in places if place.is_file()), places[-1])
    if not path.is_file():
        make = path.parents[1] if not named else Path(".venv-nat")
        raise ConfigError(
            f"environment.sandbox.python must name the interpreter of the sandbox's virtual environment, but {path} "
            f"does not exist. Make it with `python -m venv {make}` and "
            f"`{make}/bin/pip install nvidia-nat-core nvidia-nat-test`, or set {PYTHON_VARIABLE}"
        )
    # Absolute but not resolved: the link itself is what makes it a virtual environment.
    return path if path.is_absolute() else Path.cwd() / path


def interpreter_folders(python: Path) -> list[str]:
    """Return the virtual environment and the installation that it links to, without what lies in `/usr`."""
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


def server_settings(
    config: SandboxConfig, *, mode: str, uid: int, preload: tuple[str, ...], scratch: str = "", **folders: list[str]
) -> str:
    """Return the server program's settings as JSON.

    Args:
        config: Section `environment.sandbox`.
        mode: One of `inside/isolation.py`.
        uid: What jobs run as; 0 for the server's own user.
        preload: Modules to import once.
        scratch: Where jobs without a file system of their own get a folder.
        folders: `writable_folders` that become a tmpfs of each job, the work folder first; `readable_folders`
            that Landlock leaves open.
    """
    limits = {
        "memory_mib": config.memory_mib,
        "max_processes": config.max_processes,
        "max_file_mib": config.max_file_mib,
        "max_tmpfs_mib": 4 * config.max_file_mib,
        "max_entries": _MAX_ENTRIES,
        "max_output_bytes": config.max_output_bytes,
        **folders,
    }
    settings = {"mode": mode, "uid": uid, "limits": limits, "preload": list(preload), "scratch": scratch}
    return json.dumps(settings)


def server_program(python: Path, settings: str, folder: Path = INSIDE_FOLDER) -> list[str]:
    """Return the command line of the server program."""
    return [str(python), "-I", "-B", str(folder / "server.py"), settings]


def server_environment(python: Path, *, home: str, scratch: str) -> dict[str, str]:
    """Return the whole environment of a server; nothing of the trainer's own goes in."""
    return {
        "PATH": f"{python.parent}:/usr/bin:/bin",
        "HOME": home,
        "TMPDIR": scratch,
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "TZ": "UTC",
    }


def draw_uid() -> int:
    """Return an unprivileged uid for a server's jobs: the kernel counts processes per uid, servers must not share one.

    Raises:
        SandboxError: This user namespace has none to give.
    """
    ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    for first, number in ((_FIRST_UID, _NUM_UIDS), (_FIRST_SMALL_UID, _NUM_SMALL_UIDS)):
        if any(start <= first and first + number <= start + length for start, _, length in ranges):
            return random.randrange(first, first + number)
    raise SandboxError(
        f"a root that runs jobs must have the uids from {_FIRST_SMALL_UID} on to give them, but its user namespace "
        f"has {ranges}. Run as an ordinary user, or map more ids into the container"
    )

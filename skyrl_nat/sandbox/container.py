"""Jobs in a container of podman, docker or apptainer; in it each is confined by Landlock and seccomp.

The container has this machine's `/usr` and the interpreter, read-only, no network, and one sized tmpfs. Started
by root its server keeps only what it needs to give each job a uid of its own; started by an ordinary
user nobody in it has any capability.
"""

import os
import random
import resource
import secrets
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
    find_python,
    interpreter_folders,
    server_environment,
    server_program,
    server_settings,
)
from skyrl_nat.sandbox.server_process import Launch, make_scratch

RUNTIMES = ("podman", "docker", "apptainer")
_PROGRAM_FOLDER = Path("/opt/skyrl-nat-sandbox")
_BOXES = "/boxes"
_SERVER_CAPABILITIES = ("SETUID", "SETGID", "KILL", "CHOWN", "FOWNER", "DAC_OVERRIDE")
_FIRST_UID, _NUM_UIDS = 20_000, 40_000
_USER = "1000"
_RUNTIME_VARIABLES = ("HOME", "PATH", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DBUS_SESSION_BUS_ADDRESS", "USER")


class ContainerSandbox(ForkServerSandbox):
    """A fork server in a container."""

    advice = (
        "Install podman (no image needed), or give docker or apptainer one by environment.sandbox.container_image; "
        "`podman run --rm --network none --rootfs FOLDER true` must work for this user"
    )

    def __init__(self, config: SandboxConfig, *, preload: tuple[str, ...] = PRELOAD) -> None:
        """Find a runtime and the interpreter; starts nothing.

        Raises:
            ConfigError: The sandbox's interpreter does not exist.
            SandboxError: There is no runtime.
        """
        python = find_python(config)
        program = find_runtime(config)
        runtime = Path(program).name
        # Only with apptainer a container's user is the caller.
        is_root = os.geteuid() == 0 or runtime == "docker"
        readable = [*SYSTEM_FOLDERS, *SYSTEM_FILES, *interpreter_folders(python), str(_PROGRAM_FOLDER)]

        def make_launch() -> Launch:
            # The container has a pid namespace of its own: its uids meet nobody else's processes.
            uid = random.randrange(_FIRST_UID, _FIRST_UID + _NUM_UIDS) if is_root else 0
            settings = server_settings(
                config, mode="landlock", uid=uid, preload=preload, scratch=_BOXES, readable_folders=readable
            )
            scratch, name = make_scratch(), f"skyrl-nat-{secrets.token_hex(6)}"
            image = config.container_image or make_root(scratch, mounts(python))
            if runtime == "apptainer":
                options, kill = apptainer_options(mounts(python), scratch), None
            else:
                options = container_options(config, runtime, mounts(python), name, is_root=is_root)
                kill = [program, "kill", name]
            inner = server_environment(python, home=_BOXES, scratch=_BOXES)
            clean = ["/usr/bin/env", "-i", *(f"{key}={value}" for key, value in inner.items())]
            command = [program, *options, image, *clean, *server_program(python, settings, _PROGRAM_FOLDER)]
            own = {key: os.environ[key] for key in _RUNTIME_VARIABLES if key in os.environ}
            return Launch(command, own, scratch, kill)

        super().__init__(config, make_launch)


def find_runtime(config: SandboxConfig) -> str:
    """Return the path of the first container program that can be used.

    Raises:
        SandboxError: There is none.
    """
    for name in RUNTIMES:
        program = shutil.which(name)
        if program is not None and (name != "docker" or config.container_image):
            return program
    raise SandboxError(
        f"environment.sandbox.backend=container needs one of {', '.join(RUNTIMES)} (docker with an image), "
        f"found none. {ContainerSandbox.advice}"
    )


def mounts(python: Path) -> dict[str, str]:
    """Return what the container sees of this machine, read-only: path there by path here."""
    paths = [path for path in (*SYSTEM_FOLDERS, *SYSTEM_FILES) if Path(path).exists() and not Path(path).is_symlink()]
    return {path: path for path in (*paths, *interpreter_folders(python))} | {str(INSIDE_FOLDER): str(_PROGRAM_FOLDER)}


def make_root(scratch: str, mounted: dict[str, str]) -> str:
    """Make a root folder with nothing but places to mount on."""
    root = Path(scratch) / "root"
    for name in ("proc", "sys", "dev", "etc", "run", "tmp", "var/tmp", _BOXES.strip("/")):
        (root / name).mkdir(parents=True, exist_ok=True)
    for source, target in mounted.items():
        place = root / target.strip("/")
        if Path(source).is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    for path in map(Path, SYSTEM_FOLDERS):
        if path.is_symlink():
            (root / path.name).symlink_to(path.readlink())
    return str(root)


def container_options(
    config: SandboxConfig, runtime: str, mounted: dict[str, str], name: str, *, is_root: bool
) -> list[str]:
    """Return the options of `podman run` or `docker run`, up to the image."""
    # A root without CAP_SYS_RESOURCE may not raise them; an ordinary user's count includes the trainer.
    num_files = min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    num_processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    num_processes = min(4096, num_processes) if is_root and num_processes > 0 else num_processes
    size = f"size={4 * config.max_file_mib}m,mode=0755"
    options = ["run", "--rm", "--interactive", "--name", name, "--network", "none", "--read-only"]
    options += ["--log-driver", "none", "--ulimit", f"nofile={num_files}:{num_files}"]
    options += ["--ulimit", f"nproc={num_processes}:{num_processes}"]
    options += [
        "--security-opt",
        "no-new-privileges",
        "--cap-drop",
        "ALL",
        "--tmpfs",
        f"{_BOXES}:rw,nosuid,nodev,{size}",
    ]
    if is_root:
        for capability in _SERVER_CAPABILITIES:
            options += ["--cap-add", capability]
    else:
        options += ["--uidmap", f"{_USER}:0:1", "--gidmap", f"{_USER}:0:1", "--user", f"{_USER}:{_USER}"]
        options += ["--sysctl", f"net.ipv4.ping_group_range={_USER} {_USER}"]  # the default's group is not mapped
    for source, target in mounted.items():
        options += ["--volume", f"{source}:{target}:ro"]
    if runtime == "podman":
        options += ["--cgroups", "disabled", "--read-only-tmpfs=false", "--security-opt", "label=disable"]
        options += [] if config.container_image else ["--rootfs"]
    return options


def apptainer_options(mounted: dict[str, str], scratch: str) -> list[str]:
    """Return the options of `apptainer exec`, up to the image."""
    boxes = Path(scratch) / "boxes"
    boxes.mkdir()
    options = ["exec", "--containall", "--no-home", "--net", "--network", "none", "--bind", f"{boxes}:{_BOXES}"]
    for source, target in mounted.items():
        options += ["--bind", f"{source}:{target}:ro"]
    return options

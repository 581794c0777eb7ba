"""Training as a job of a running Ray cluster: this folder's code travels, data and runs stay."""

import json
import logging
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from ray._private.runtime_env.packaging import create_package

from skyrl_nat.config.load import load_config
from skyrl_nat.config.run import RunConfig
from skyrl_nat.errors import ConfigError

LEFT_OUT = (
    "/.?*",
    "/runs",
    "/data",
    "/outputs",
    "/wandb",
    "/tests",
    "/docs",
    "/benchmarks",
    "__pycache__",
    "*.egg-info",
    "*.safetensors",
    "*.gguf",
)
"""What does not travel, as in a .gitignore; so does what the folder's own .gitignore and .rayignore name."""
MAX_MIB = 100
"""Ray keeps the upload in the memory of its head, and gives up at 500."""
MIB = 1024**2
ANSWER_S = 20.0


def submit(address: str, overrides: Sequence[str], *, is_waiting: bool = True) -> int:
    """Upload the current folder and train there.

    Args:
        address: Of the cluster's dashboard, `http://HOST:8265`.
        overrides: As of `skyrl-nat train`; checked here, before anything travels.
        is_waiting: Show the job's output until it ends.

    Returns:
        The exit code of `ray job submit`: 0 where the job succeeded, or has begun and is not waited for.

    Raises:
        ConfigError: The config is refused, names a path that only this folder has, or the folder is too large.
    """
    require_shared_paths(load_config(overrides))
    folder = Path.cwd()
    size = upload_bytes(folder)
    if size > MAX_MIB * MIB:
        raise ConfigError(
            f"The folder of a job must be at most {MAX_MIB} MiB packed, {folder} is {size / MIB:.1f}. Name what the "
            "job does not need in .rayignore"
        )
    _require_dashboard(address)
    print(f"uploading {folder}: {size / MIB:.1f} MiB packed, without {', '.join(LEFT_OUT)}", flush=True)
    runtime = {"working_dir": str(folder), "excludes": list(LEFT_OUT)}
    return subprocess.run(
        [
            *(sys.executable, "-m", "ray.scripts.scripts", "job", "submit", f"--address={address}"),
            *([] if is_waiting else ["--no-wait"]),
            f"--runtime-env-json={json.dumps(runtime)}",
            *("--", sys.executable, "-m", "skyrl_nat.cli", "train", *overrides),
        ]
    ).returncode


def _require_dashboard(address: str) -> None:
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/api/version", timeout=ANSWER_S):
            return
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--address must be that of a Ray cluster's dashboard, {address} does not answer: {error}. Start Ray there "
            "with `ray start --head --dashboard-host=HOST`, HOST being the head's address in the cluster's own network"
        ) from error


def upload_bytes(folder: Path) -> int:
    """Return the size of a folder as Ray packs it."""
    quiet = logging.getLogger(f"{__name__}.packing")
    quiet.setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as place:
        package = Path(place) / "package.zip"
        create_package(str(folder), package, include_gitignore=True, excludes=list(LEFT_OUT), logger=quiet)
        return package.stat().st_size


def require_shared_paths(config: RunConfig) -> None:
    """Refuse paths that are relative: the job runs in a copy of this folder without data, which is deleted after it.

    Raises:
        ConfigError: With the key.
    """
    environment = config.environment
    files = {
        "environment.train_files": environment.train_files,
        "environment.validation_files": environment.validation_files,
        "environment.recorded_files": environment.recorded_files,
        "root_dir": [config.root_dir],
        "model.path": [config.model.path] if Path(config.model.path).exists() else [],
        "resume": [config.resume]
        if config.resume not in ("never", "latest", "best") and "://" not in config.resume
        else [],
        "checkpoint.mirror": [mirror] if (mirror := config.checkpoint.mirror) and "://" not in mirror else [],
    }
    for key, names in files.items():
        for name in names:
            if not name.startswith("builtin:") and not Path(name).expanduser().is_absolute():
                raise ConfigError(
                    f"{key} must be an absolute path that all nodes see, got {name!r}: a job runs in a copy of this "
                    f"folder without data, which is deleted after it. Write its full path"
                )

"""Node-local folders: Ray's, whose path must be short, and the caches of what is compiled."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

LONGEST_RAY_FOLDER = 36
"""Bytes: the path of a Unix socket has 107, of which Ray's session and file names take up to 71."""
CACHES = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "TRITON_CACHE_DIR": "triton",
    "VLLM_CACHE_ROOT": "vllm",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "CUDA_CACHE_PATH": "cuda",
}
"""Variable -> folder. By default these lie in the home folder, which many nodes share and lock against each other."""


def ray_folder(name: str, environment: Mapping[str, str]) -> Path:
    """Return a folder of this name whose path is short enough for Ray's sockets."""
    for parent in (environment.get("RAY_TMPDIR"), environment.get("TMPDIR"), "/tmp"):
        if parent and len(os.fsencode(folder := Path(parent) / name)) <= LONGEST_RAY_FOLDER:
            return folder
    return Path("/tmp") / name[: LONGEST_RAY_FOLDER - len("/tmp/")]


def cache_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep compile caches on this node; those that the user has set are left alone.

    The folder belongs to the user alone, since what lies there is loaded as code; where somebody else has one of this
    name, nothing is set.
    """
    root = Path(tempfile.gettempdir()) / f"skyrl-nat-cache-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    found = root.lstat()
    if root.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o022:
        return {}
    return {variable: str(root / name) for variable, name in CACHES.items() if variable not in environment}

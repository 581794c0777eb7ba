"""A private view of this machine in which a test may be root or an ordinary user, without changing the machine.

In namespaces of its own: every process ends with the command, interpreters that lie in closed folders (pyenv below
/root) can be read by every user, and cgroups do not look half old, half new, which crun refuses.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from skyrl_nat.sandbox.launch import interpreter_folders

ORDINARY = 1001
ROOT = 0


@contextmanager
def command_prefix(uid: int, pythons: Iterable[Path]) -> Iterator[list[str]]:
    """Give the beginning of a command line that runs the rest as `uid` in a private view.

    Raises:
        PermissionError: This user may not make one.
    """
    if os.geteuid() != 0:
        raise PermissionError("only root can make a private view of the machine")
    folders = sorted({folder for python in pythons for folder in interpreter_folders(python)})
    with tempfile.TemporaryDirectory(prefix="skyrl-nat-private-") as scratch:
        Path(scratch).chmod(0o755)
        home = Path(scratch, "home")
        (home / "run").mkdir(parents=True)
        for path in (home, home / "run"):
            path.chmod(0o700)
            os.chown(path, uid, uid)
        script = ["set -e", "umount /sys/fs/cgroup/unified 2>/dev/null || true"]
        script += _open_up(folders, scratch)
        user = f"setpriv --reuid {uid} --regid {uid} --clear-groups" if uid else ""
        variables = f"HOME={home} XDG_RUNTIME_DIR={home}/run PATH={os.environ['PATH']} PYTHONDONTWRITEBYTECODE=1"
        script.append(f'exec {user} env -i {variables} "$@"')
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
        prefix = [*unshare, "sh", "-c", "\n".join(script), "private"]
        tried = subprocess.run([*prefix, sys.executable, "-c", "print(1)"], capture_output=True, text=True, check=False)
        if tried.stdout != "1\n":
            raise PermissionError(f"no private view of the machine: {tried.stderr.strip()[-300:]}")
        yield prefix


def _open_up(folders: list[str], scratch: str) -> list[str]:
    """Return the commands that make folders reachable for everybody: what closes them is covered, they come back."""
    closed = {folder: top for folder in folders if (top := _closed_ancestor(folder))}
    lines = []
    for index, folder in enumerate(closed):
        lines += [f"mkdir -p {scratch}/{index}", f"mount --bind {shlex.quote(folder)} {scratch}/{index}"]
    lines += [f"mount -t tmpfs -o mode=755 none {shlex.quote(top)}" for top in sorted(set(closed.values()))]
    for index, folder in enumerate(closed):
        lines += [f"mkdir -p {shlex.quote(folder)}", f"mount --bind {scratch}/{index} {shlex.quote(folder)}"]
    return lines


def _closed_ancestor(folder: str) -> str:
    for parent in reversed(Path(folder).parents):
        if not parent.stat().st_mode & 0o001:
            return str(parent)
    return ""

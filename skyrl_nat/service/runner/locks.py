"""Who trains in a run folder: a locked file that the trainer holds open until it ends, however that happens."""

import fcntl
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

LOOK_S = 0.1


def lock_file(state_dir: Path, run: str) -> Path:
    """Return the file that stands for a run folder."""
    return state_dir / "locks" / f"{run}.lock"


def take(path: Path, timeout_s: float) -> int | None:
    """Lock a file for this process and what it becomes by `exec`; return its descriptor, None where another has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                return None
            time.sleep(LOOK_S)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} {psutil.Process().create_time()!r}".encode(), 0)
    os.set_inheritable(descriptor, True)
    return descriptor


def is_held(path: Path) -> bool:
    """Say whether a living process has the lock."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def kill_holder(path: Path) -> None:
    """Kill the process that wrote itself into a lock, with all that it has started, if it is still the same one."""
    with suppress(OSError, ValueError, psutil.Error):
        number, started = path.read_text(encoding="ascii").split()
        process = psutil.Process(int(number))
        if process.create_time() == float(started):
            for each in [*process.children(recursive=True), process]:
                with suppress(psutil.Error):
                    each.send_signal(signal.SIGKILL)

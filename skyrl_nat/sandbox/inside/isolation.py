"""What a job's process does to itself before any code of the policy runs.

Stdlib only: this file is executed by the sandbox's own interpreter and must not import the package.
Linux only; system calls go through ctypes because `os.unshare` needs Python 3.12.
"""

import contextlib
import ctypes
import os
import resource
import signal
import struct
from pathlib import Path

import landlock
import processes
import seccomp

NAMESPACE_MODE = "namespaces"
"""Server is unprivileged: every job gets a user namespace of its own."""
ROOT_MODE = "root"
"""Server holds CAP_SYS_ADMIN: every job gets its namespaces directly and then an unprivileged uid."""
LANDLOCK_MODE = "landlock"
"""No namespaces: Landlock and seccomp, and an unprivileged uid where the server may give one."""
PLAIN_MODE = "none"
"""Limits only: no security."""

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWPID = 0x10000000, 0x20000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 1, 2, 4, 8, 16384, 1 << 18
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_PR_SET_CHILD_SUBREAPER, _PR_SET_PDEATHSIG = 36, 1
_CAPABILITY_VERSION = 0x20080522
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def has_namespaces(mode: str) -> bool:
    """Return whether jobs of a mode get namespaces of their own."""
    return mode in (NAMESPACE_MODE, ROOT_MODE)


def set_dumpable(is_dumpable: bool) -> None:
    """Open or close this process to ptrace and to readers of its `/proc` entries."""
    _libc.prctl(_PR_SET_DUMPABLE, int(is_dumpable), 0, 0, 0)


def become_subreaper() -> None:
    """Make orphans of this process's descendants its own children."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def enter_namespaces(mode: str) -> None:
    """Give the children of this process their own mounts, pids, ipc and host name."""
    flags = _CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWIPC | _CLONE_NEWUTS
    if mode == ROOT_MODE:
        _check(_libc.unshare(flags), "unshare")
        return
    uid, gid = os.getuid(), os.getgid()
    set_dumpable(True)  # else /proc/self/uid_map belongs to root
    _check(_libc.unshare(flags | _CLONE_NEWUSER), "unshare with a user namespace")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        Path(f"/proc/self/{name}").write_text(text)


def mount_private(limits: dict) -> None:
    """Cover every writable folder with a fresh, sized tmpfs and `/proc` with the job's own view."""
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE, None)
    options = f"size={limits['max_tmpfs_mib']}m,nr_inodes={limits['max_entries']},mode=1777"
    for folder in limits["writable_folders"]:
        _mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    try:
        # Read-only: a job that could write there could give up its share of the CPU and pass for starved.
        _mount("proc", "/proc", "proc", _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None)
    except OSError:
        # Kernels refuse a new procfs where parts of the outer one are covered; none at all is as safe.
        _mount("tmpfs", "/proc", "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "size=4k,mode=555")


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    encode = [text.encode() if text is not None else None for text in (source, target, kind, options)]
    result = _libc.mount(encode[0], encode[1], encode[2], ctypes.c_ulong(flags), encode[3])
    _check(result, f"mount {target}")


def set_limits(limits: dict, *, cpu_s: float, num_processes: int) -> None:
    """Set the resource limits of this process and of all that it starts.

    Args:
        limits: The server's.
        cpu_s: What each process may burn.
        num_processes: How many processes and threads its user may have in all.
    """
    mib = 1 << 20
    pairs = [
        (resource.RLIMIT_AS, limits["memory_mib"] * mib),
        (resource.RLIMIT_FSIZE, limits["max_file_mib"] * mib),
        (resource.RLIMIT_NOFILE, 128),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, 2 * int(cpu_s) + 2),  # a backstop: the clock of the job comes first, and says why
        (resource.RLIMIT_NPROC, num_processes),
    ]
    for kind, value in pairs:
        _, hard = resource.getrlimit(kind)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


def drop_privileges(uid: int) -> None:
    """Take a uid where one is given, and give up every capability for good."""
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    _check(_libc.capset(header, struct.pack("6I", 0, 0, 0, 0, 0, 0)), "capset")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def capabilities() -> int:
    """Return the effective capabilities of this process, as bits."""
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION, 0))
    data = ctypes.create_string_buffer(24)
    _check(_libc.capget(header, data), "capget")
    words = struct.unpack("6I", data.raw)
    return words[0] | words[3] << 32


def close_system_calls(mode: str, uid: int) -> None:
    """Close the system calls that could win privileges back or reach what the mode does not hide."""
    seccomp.install(is_shared_machine=mode == LANDLOCK_MODE, is_shared_user=not uid)


def close_file_system(limits: dict, box: str, uid: int) -> None:
    """Leave by Landlock the interpreter to read and the job's own folder to write.

    Raises:
        OSError: Without a uid of their own jobs need a kernel that keeps signals inside.
    """
    if not uid and landlock.version() < landlock.SIGNAL_ABI:
        raise OSError(
            f"without root Landlock must have ABI >= {landlock.SIGNAL_ABI} (kernel 6.12), "
            f"this kernel has {landlock.version()}"
        )
    landlock.restrict(limits["readable_folders"], (box, *_DEVICES))


class Reins:
    """How the first process of a job holds what it starts; the server sets it in each job."""

    first_process = 0
    can_kill_all = False
    """Whether `kill(-1)` reaches the job and nobody else."""


def take_reins(server: int, *, can_kill_all: bool) -> None:
    """Become the job's first process, which ends with all others when the server does."""
    Reins.first_process, Reins.can_kill_all = os.getpid(), can_kill_all
    become_subreaper()
    if can_kill_all:
        signal.signal(signal.SIGTERM, lambda *_: (kill_workers(), os._exit(1)))
    if os.getpid() != 1:  # init of a namespace dies with the container
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != server:
            os._exit(1)


def become_worker() -> None:
    """Give up all power over the first process; in a fork of it, before code of the policy runs."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setpgid(0, 0)
    if Reins.can_kill_all and Reins.first_process != 1:
        landlock.keep_signals_inside()


def kill_workers() -> None:
    """Kill and reap everything else of the job; in its first process."""
    if os.getpid() != Reins.first_process:
        return
    if not Reins.can_kill_all:
        processes.Family(is_alone=False, uid=0).kill()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)

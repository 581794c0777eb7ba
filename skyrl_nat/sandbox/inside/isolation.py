"""What a job's process does to itself before any code of the policy runs.

Stdlib only: this file is executed by the sandbox's own interpreter and must not import the package.
Linux only; system calls go through ctypes because `os.unshare` needs Python 3.12.
"""

import ctypes
import os
import platform
import resource
import struct
from pathlib import Path

NAMESPACE_MODE = "namespaces"
"""Server is unprivileged: every job gets a user namespace of its own."""
ROOT_MODE = "root"
"""Server holds CAP_SYS_ADMIN: every job gets its namespaces directly and then an unprivileged uid."""
PLAIN_MODE = "none"
"""No namespaces: limits only."""

WORK_FOLDER = "/job"

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWPID = 0x10000000, 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 16384, 1 << 18
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 4, 38, 22
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


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
    options = f"size={limits['max_tmpfs_mib']}m,nr_inodes=20000,mode=1777"
    for folder in limits["writable_folders"]:
        _mount("tmpfs", folder, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    try:
        _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None)
    except OSError:
        # Kernels refuse a new procfs where parts of the outer one are covered; none at all is as safe.
        _mount("tmpfs", "/proc", "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "size=4k,mode=555")


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    encode = [text.encode() if text is not None else None for text in (source, target, kind, options)]
    result = _libc.mount(encode[0], encode[1], encode[2], ctypes.c_ulong(flags), encode[3])
    _check(result, f"mount {target}")


def set_limits(limits: dict, mode: str) -> None:
    """Set the resource limits of this process and of all that it starts."""
    mib = 1 << 20
    pairs = [
        (resource.RLIMIT_AS, limits["memory_mib"] * mib),
        (resource.RLIMIT_FSIZE, limits["max_file_mib"] * mib),
        (resource.RLIMIT_NOFILE, 128),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, int(limits["cpu_s"]) + 1),
    ]
    if mode != PLAIN_MODE:
        # Without a user of its own the count would include the trainer's processes.
        pairs.append((resource.RLIMIT_NPROC, limits["max_processes"]))
    for kind, value in pairs:
        _, hard = resource.getrlimit(kind)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


def drop_privileges(mode: str, uid: int) -> None:
    """Give up every capability, for good, and close the system calls that could win one back."""
    if mode == ROOT_MODE:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = struct.pack("Ii", 0x20080522, 0)
    _check(_libc.capset(header, struct.pack("6I", 0, 0, 0, 0, 0, 0)), "capset")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _install_filter()


_DENIED = {
    # ptrace mount umount2 pivot_root unshare setns bpf keyctl add_key request_key perf_event_open
    # userfaultfd process_vm_readv process_vm_writev open_by_handle_at
    "x86_64": (101, 165, 166, 155, 272, 308, 321, 250, 248, 249, 298, 323, 310, 311, 304),
    "aarch64": (117, 40, 39, 41, 97, 268, 280, 219, 217, 218, 241, 282, 270, 271, 265),
}
_DENIED_EVERYWHERE = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442)
"""io_uring (3), open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr: one number everywhere."""
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_EPERM, _ENOSYS = 1, 38
_NEW_NAMESPACES = _CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWIPC | _CLONE_NEWUTS | 0x40000000


def _filter_program(machine: str) -> bytes:
    """Return classic BPF: allow all but the denied calls and `clone` with a new namespace."""
    load, jump_equal, jump_at_least, jump_bits, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, refuse, missing = 0x7FFF0000, 0x00050000 | _EPERM, 0x00050000 | _ENOSYS

    def line(code: int, true: int, false: int, value: int) -> bytes:
        return struct.pack("HBBI", code, true, false, value)

    program = [
        line(load, 0, 0, 4),  # architecture
        line(jump_equal, 1, 0, _AUDIT_ARCH[machine]),
        line(answer, 0, 0, refuse),
        line(load, 0, 0, 0),  # system call number
        line(jump_at_least, 0, 1, 0x40000000),  # x32
        line(answer, 0, 0, refuse),
        line(jump_equal, 0, 1, _CLONE3),  # its flags are behind a pointer; libc falls back to clone
        line(answer, 0, 0, missing),
    ]
    for number in (*_DENIED[machine], *_DENIED_EVERYWHERE):
        program += [line(jump_equal, 0, 1, number), line(answer, 0, 0, refuse)]
    program += [
        line(jump_equal, 0, 3, _CLONE[machine]),
        line(load, 0, 0, 16),  # low half of the first argument
        line(jump_bits, 0, 1, _NEW_NAMESPACES),
        line(answer, 0, 0, refuse),
        line(answer, 0, 0, allow),
    ]
    return b"".join(program)


def _install_filter() -> None:
    machine = platform.machine()
    if machine not in _AUDIT_ARCH:
        return
    code = _filter_program(machine)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    _check(_libc.prctl(_PR_SET_SECCOMP, 2, program, 0, 0), "seccomp")

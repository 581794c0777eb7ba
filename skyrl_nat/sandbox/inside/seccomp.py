"""The system calls that a job may not make. Stdlib only.

Classic BPF, built here: no library is needed. What a namespace would have hidden (sockets, the machine's own
IPC, attributes of files) is closed here where a job shares the machine's namespaces.
"""

import ctypes
import platform
import struct

_PR_SET_SECCOMP, _PR_GET_SECCOMP = 22, 21
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_DENIED = {
    # ptrace mount umount2 pivot_root unshare setns bpf keyctl add_key request_key perf_event_open
    # userfaultfd process_vm_readv process_vm_writev open_by_handle_at
    # memfd_create shmget (memory that no process owns) kcmp move_pages migrate_pages syslog chroot
    # setpriority sched_setscheduler sched_setparam sched_setaffinity sched_setattr ioprio_set (a job that makes
    # itself wait could pass for starved) clock_settime settimeofday adjtimex clock_adjtime
    "x86_64": (
        *(101, 165, 166, 155, 272, 308, 321, 250, 248, 249, 298, 323, 310, 311, 304),
        *(319, 29, 312, 279, 256, 103, 161, 141, 144, 142, 203, 314, 251, 227, 164, 159, 305),
    ),
    "aarch64": (
        *(117, 40, 39, 41, 97, 268, 280, 219, 217, 218, 241, 282, 270, 271, 265),
        *(279, 194, 272, 239, 238, 116, 51, 140, 119, 118, 122, 274, 30, 112, 170, 171, 266),
    ),
}
_DENIED_EVERYWHERE = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442, 438, 440, 447, 448)
"""io_uring (3), open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr, pidfd_getfd,
process_madvise, memfd_secret, process_mrelease: one number everywhere."""
_DENIED_ON_SHARED_MACHINE = {
    # socket connect bind listen semget msgget mq_open mq_unlink inotify_add_watch fanotify_init
    # setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr setxattrat removexattrat
    "x86_64": (41, 42, 49, 50, 64, 68, 240, 241, 254, 300, 188, 189, 190, 197, 198, 199, 463, 466),
    "aarch64": (198, 203, 200, 201, 190, 186, 180, 181, 27, 262, 5, 6, 7, 14, 15, 16, 463, 466),
}
_PRETENDED_FOR_SHARED_USER = {
    # chmod fchmod chown fchown lchown utime utimes fchownat futimesat fchmodat utimensat fchmodat2
    "x86_64": (90, 91, 92, 93, 94, 132, 235, 260, 261, 268, 280, 452),
    "aarch64": (52, 53, 54, 55, 88, 452),
}
"""Landlock does not cover them, and a job under the trainer's uid owns the trainer's files. Answered as done,
because honest tools (touch, cp) make them too."""
_CLONE = {"x86_64": 56, "aarch64": 220}
_PRLIMIT = {"x86_64": 302, "aarch64": 261}
_PRCTL, _PR_SET_DUMPABLE = {"x86_64": 157, "aarch64": 167}, 4
_SOCKETPAIR = {"x86_64": 53, "aarch64": 199}
_CLONE3 = 435
_NEW_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x02000000
_EPERM, _ENOSYS = 1, 38
_LOAD, _AND, _IF_EQUAL, _IF_AT_LEAST, _IF_BITS, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ANSWER = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_MASK = 1, 5, 0xF


def install(*, is_shared_machine: bool, is_shared_user: bool) -> None:
    """Close the calls for this process and all that it starts; needs no_new_privs.

    Raises:
        OSError: The kernel refuses, or the processor is unknown here.
    """
    machine = platform.machine()
    if machine not in _AUDIT_ARCH:
        raise OSError(f"system calls of {machine} are unknown here")
    code = _program(machine, is_shared_machine=is_shared_machine, is_shared_user=is_shared_user)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, 2, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def is_active() -> bool:
    """Return whether system calls of this process are filtered."""
    return ctypes.CDLL(None).prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) == 2


def _program(machine: str, *, is_shared_machine: bool, is_shared_user: bool) -> bytes:
    refuse = _line(_RETURN, _ANSWER | _EPERM)
    program = [
        _line(_LOAD, _ARCHITECTURE),
        _line(_IF_EQUAL, _AUDIT_ARCH[machine], true=1),
        refuse,
        _line(_LOAD, _NUMBER),
        _line(_IF_AT_LEAST, 0x40000000, false=1),  # x32
        refuse,
        # The flags of clone3 are behind a pointer; libc falls back to clone.
        *_answer(_CLONE3, _ENOSYS),
    ]
    denied = [*_DENIED[machine], *_DENIED_EVERYWHERE]
    pretended: tuple[int, ...] = ()
    if is_shared_machine:
        denied += _DENIED_ON_SHARED_MACHINE[machine]
        stream = [
            _line(_AND, _SOCK_MASK),
            _line(_IF_EQUAL, _SOCK_STREAM, true=2),
            _line(_IF_EQUAL, _SOCK_SEQPACKET, true=1),
        ]
        # A datagram socket could be pointed at any socket file of the machine.
        program += _check_argument(_SOCKETPAIR[machine], 1, stream)
        # Whoever hides could keep deleted files that nobody counts.
        program += _check_argument(_PRCTL[machine], 0, [_line(_IF_EQUAL, _PR_SET_DUMPABLE, false=1)])
    if is_shared_machine and is_shared_user:
        pretended = _PRETENDED_FOR_SHARED_USER[machine]
    for number in denied:
        program += _answer(number, _EPERM)
    for number in pretended:
        program += _answer(number, 0)
    program += _check_argument(_CLONE[machine], 0, [_line(_IF_BITS, _NEW_NAMESPACES, false=1)])
    program += _check_argument(_PRLIMIT[machine], 0, [_line(_IF_EQUAL, 0, true=1)])  # only its own limits
    return b"".join([*program, _line(_RETURN, _ALLOW)])


def _line(code: int, value: int, *, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("HBBI", code, true, false, value)


def _answer(number: int, error: int) -> list[bytes]:
    return [_line(_IF_EQUAL, number, false=1), _line(_RETURN, _ANSWER | error)]


def _check_argument(number: int, index: int, test: list[bytes]) -> list[bytes]:
    """Refuse a call unless `test` jumps over the line after it; looks at the low half of an argument."""
    body = [_line(_LOAD, _ARGUMENTS + 8 * index), *test, _line(_RETURN, _ANSWER | _EPERM), _line(_LOAD, _NUMBER)]
    return [_line(_IF_EQUAL, number, false=len(body)), *body]

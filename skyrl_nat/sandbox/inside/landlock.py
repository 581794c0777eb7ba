"""Landlock: a process gives up most of the file system, TCP and signals, for good. Stdlib only; no root needed."""

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterable

SIGNAL_ABI = 6
"""From here on (kernel 6.12) a process can be kept from signalling those outside."""
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""File system rights by the version that brought the last of them."""
_TCP = 0b11
_ABSTRACT_SOCKETS, _SIGNALS = 0b01, 0b10

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Return the kernel's Landlock ABI; 0 where there is none."""
    return max(0, _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION))


def restrict(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Allow reading and running below some paths, everything below others, and nothing else; needs no_new_privs.

    Raises:
        OSError: The kernel has no Landlock, or one of the paths cannot be reached.
    """
    abi = version()
    rights = max((have, bits) for have, bits in _RIGHTS.items() if have <= max(abi, 1))[1]
    ruleset = _create(rights, _TCP if abi >= 4 else 0, _ABSTRACT_SOCKETS | _SIGNALS if abi >= SIGNAL_ABI else 0)
    for path in readable:
        _allow(ruleset, path, rights & _READ)
    for path in writable:
        _allow(ruleset, path, rights)
    _enter(ruleset)


def keep_signals_inside() -> None:
    """Keep this process and its children from signalling those that started it, where the kernel can."""
    if version() >= SIGNAL_ABI:
        _enter(_create(0, 0, _SIGNALS))


def _create(files: int, network: int, scopes: int) -> int:
    size = {True: 8, version() >= 4: 16, version() >= SIGNAL_ABI: 24}[True]
    attributes = struct.pack("QQQ", files, network, scopes)
    ruleset = _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses a Landlock ruleset")
    return ruleset


def _allow(ruleset: int, path: str, rights: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not stat.S_ISDIR(os.fstat(folder).st_mode):
            rights &= _ON_FILES
        rule = struct.pack("=Qi", rights, folder)
        result = _libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
        os.close(folder)
        if result != 0:
            raise OSError(ctypes.get_errno(), f"the kernel refuses a Landlock rule for {path}")


def _enter(ruleset: int) -> None:
    result = _libc.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    if result != 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses to restrict this process by Landlock")

"""On which addresses a process listens, from the kernel's own tables."""

import contextlib
import ipaddress
from pathlib import Path

import psutil
from marked_processes import processes_with

OF_SLURM = ("srun", "slurmstepd")


def listening_of(pid: int) -> list[str]:
    """Return the addresses on which a process listens, each with its port."""
    mine = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            mine.add(str(link.readlink()))
        except FileNotFoundError:
            continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            local, state, inode = words[1], words[3], words[9]
            if state == "0A" and f"socket:[{inode}]" in mine:
                address, port = local.split(":")
                found.append(f"{address_of(address)}:{int(port, 16)}")
    return found


def listening_with(variable: str, value: str) -> dict[str, str]:
    """Return where all processes that were started with a variable listen: address with port -> name of the process."""
    found = {}
    for process in processes_with(variable, value):
        with contextlib.suppress(psutil.Error, OSError):
            if (name := process.name().strip()) not in OF_SLURM:
                found |= dict.fromkeys(listening_of(process.pid), name)
    return found


def address_of(text: str) -> str:
    """Return an address of /proc/net/tcp in words: groups of four bytes, each in the machine's order."""
    raw = b"".join(bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8))
    address = ipaddress.ip_address(raw)
    return str(getattr(address, "ipv4_mapped", None) or address)

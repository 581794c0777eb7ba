"""Which GPUs this machine has, asked in other processes: a driver's own tool first, PyTorch where there is none."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 20.0
_NVIDIA_FILES = "dev/nvidia[0-9]*"
_AMD_FILE = "dev/kfd"
_ASK_NVIDIA = ("--query-gpu=name,memory.total,mig.mode.current", "--format=csv,noheader,nounits")
_ASK_TORCH = """
import json, torch
cards = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
print(json.dumps({"kind": "rocm" if torch.version.hip else "cuda",
                  "cards": [[card.name, card.total_memory // 2**20] for card in cards]}))
"""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that this process may use."""

    name: str
    """By the driver."""
    memory_mib: int
    is_split: bool = False
    """Whether MIG cuts it into slices, which have other peaks than the card."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """All of them, and how they are joined."""

    kind: str
    """`cuda`, `rocm`, or `none`."""
    cards: tuple[Gpu, ...] = ()
    links: str = ""
    """What joins them on this machine: `NV18`, `PIX`, `XGMI`, ...; empty for one, or where nobody says."""
    found_by: str = ""


def find_gpus(root: Path) -> Gpus:
    """Return the GPUs of this machine; torch is asked only where there is a GPU's device file.

    Args:
        root: `/`, or a recorded tree.
    """
    has_nvidia, has_amd = any(root.glob(_NVIDIA_FILES)), (root / _AMD_FILE).exists()
    if shutil.which("nvidia-smi") and (printed := _ask(["nvidia-smi", *_ASK_NVIDIA])):
        topology = _ask(["nvidia-smi", "topo", "-m"])
        return Gpus("cuda", parse_nvidia(printed), parse_topology(topology), "nvidia-smi")
    if has_amd and shutil.which("rocm-smi"):
        printed = _ask(["rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json"])
        if cards := parse_rocm(printed):
            return Gpus("rocm", cards, "XGMI" if len(cards) > 1 else "", "rocm-smi")
    if has_nvidia or has_amd:
        return parse_torch(_ask([sys.executable, "-c", _ASK_TORCH]))
    return Gpus("none")


def parse_nvidia(printed: str) -> tuple[Gpu, ...]:
    """Return the cards in nvidia-smi's table of name, memory in MiB and MIG mode."""
    cards = []
    for line in printed.splitlines():
        name, memory, mig = (word.strip() for word in line.split(","))
        cards.append(Gpu(name, int(memory), is_split=mig == "Enabled"))
    return tuple(cards)


def parse_topology(printed: str) -> str:
    """Return what joins the GPUs in nvidia-smi's matrix; the weakest of several kinds."""
    order = ["SYS", "NODE", "PHB", "PXB", "PIX"]
    rows = [line.split() for line in printed.splitlines() if re.match(r"(\x1b\[[0-9;]*m)?\s*GPU\d+\s", line)]
    rows = [row for row in rows if "X" in row]
    found = {word for row in rows for word in row[1 : 1 + len(rows)]} - {"X"}
    for name in order:
        if name in found:
            return name
    return min(found, key=lambda word: int(re.sub(r"\D", "", word) or 0), default="")


def parse_rocm(printed: str) -> tuple[Gpu, ...]:
    """Return the cards in rocm-smi's JSON, in the order of their numbers."""
    try:
        found = json.loads(printed)
    except ValueError:
        return ()
    names = sorted((name for name in found if name.startswith("card")), key=lambda name: int(name[4:]))
    return tuple(
        Gpu(
            found[name].get("Card Series") or found[name].get("Card Model", "AMD GPU"),
            int(found[name].get("VRAM Total Memory (B)", 0)) // 2**20,
        )
        for name in names
    )


def parse_torch(printed: str) -> Gpus:
    """Return the cards that PyTorch listed as JSON; `none` where it could not."""
    try:
        found = json.loads(printed)
    except ValueError:
        return Gpus("none")
    cards = tuple(Gpu(name, memory) for name, memory in found["cards"])
    return Gpus(found["kind"] if cards else "none", cards, found_by="torch")


def _ask(command: list[str]) -> str:
    """Return what a program prints, empty where it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout
    except (OSError, subprocess.SubprocessError):
        return ""

"""What this machine has: cores and their vectors, memory, GPUs, links, disk; from files where there is no GPU."""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from skyrl_nat.monitoring.cards import CARDS, Card
from skyrl_nat.planning.gpus import Gpus, find_gpus
from skyrl_nat.planning.limits import cpu_limit, memory_limit, slurm_limits
from skyrl_nat.planning.rates import CAPACITY_GIB, GIB, Machine

VECTORS = {"amx_tile": "AMX", "avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON"}
"""Flags of /proc/cpuinfo (`Features` on Arm), widest first."""
_FP32_PER_CYCLE = {"AMX": 64, "AVX-512": 64, "AVX2": 32, "NEON": 16}
"""Additions and multiplications in fp32 of one core and cycle: two fused units. AMX knows no fp32, and comes with
AVX-512."""
_STAND_IN = "NVIDIA A100-SXM4-80GB"
_USUAL_GHZ = 2.5
_BYTES_PER_CORE = 10e9
"""Per second between memory and one core of a shared server: a usual figure, not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor."""

    model: str
    num_cores: int
    """That this process may use, whatever limits it."""
    num_cores_of_machine: int
    ghz: float
    vectors: tuple[str, ...]
    """Of `VECTORS`, widest first."""

    @property
    def flops(self) -> float:
        """Peak in fp32, of the cores that may be used."""
        per_cycle = max((_FP32_PER_CYCLE[name] for name in self.vectors), default=8)
        return self.num_cores * (self.ghz or _USUAL_GHZ) * 1e9 * per_cycle


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """One machine, as far as this process may use it."""

    cpu: Cpu
    memory_gib: float
    """That this process may use at most."""
    free_memory_gib: float
    memory_limited_by: str
    """`machine`, `cgroup` or `slurm`."""
    cores_limited_by: str
    """`machine`, `affinity`, `cgroup` or `slurm`."""
    gpus: Gpus
    network: tuple[str, ...]
    """InfiniBand or RoCE adapters with their rates."""
    disk_gib: float
    """Free, where the given folder lies."""
    slurm: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @property
    def machine(self) -> Machine:
        """What its first GPU brings, or the whole machine where it has none.

        A card without a data sheet here has its own memory and the peaks of an A100.
        """
        for gpu in self.gpus.cards[:1]:
            if gpu.name in CARDS and not gpu.is_split:
                return Machine(name=gpu.name, card=CARDS[gpu.name], capacity_gib=CAPACITY_GIB[gpu.name])
            peaks = CARDS[_STAND_IN]
            return Machine(name=f"{gpu.name} (peaks of an A100)", card=peaks, capacity_gib=gpu.memory_mib / 1024)
        return cpu_machine(self.cpu, self.memory_gib)


def cpu_machine(cpu: Cpu, memory_gib: float) -> Machine:
    """Return a machine without GPUs as one that computes."""
    peaks = Card(bf16_flops=cpu.flops, memory_bytes=_BYTES_PER_CORE * cpu.num_cores, link_bytes=_BYTES_PER_CORE)
    return Machine(name=cpu.model or "CPU", card=peaks, capacity_gib=memory_gib, is_gpu=False)


def look(folder: Path = Path(), root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> Hardware:
    """Return what there is.

    Args:
        folder: Whose disk is looked at.
        root: `/`, or a recorded tree of `/proc`, `/sys` and `/dev`.
        environment: Variables of the process, for Slurm's.
    """
    slurm = slurm_limits(environment)
    cpu, cores_by = _cpu(root, slurm)
    memory, free = _memory(root)
    memory_limits = {"machine": memory, "cgroup": _gib(memory_limit(root)), "slurm": slurm.get("memory_mib", 0) / 1024}
    memory_by = min((name for name, size in memory_limits.items() if size), key=lambda name: memory_limits[name])
    return Hardware(
        cpu=cpu,
        memory_gib=memory_limits[memory_by],
        free_memory_gib=min(free, memory_limits[memory_by]),
        memory_limited_by=memory_by,
        cores_limited_by=cores_by,
        gpus=find_gpus(root),
        network=_network(root),
        disk_gib=_free_disk(folder),
        slurm=slurm,
    )


def _cpu(root: Path, slurm: Mapping[str, int]) -> tuple[Cpu, str]:
    model, ghz, flags, num_listed = parse_cpuinfo((root / "proc/cpuinfo").read_text(encoding="utf-8"))
    limits: dict[str, float] = {"machine": num_listed}
    if root == Path("/"):
        limits["affinity"] = len(os.sched_getaffinity(0))
    limits |= {"cgroup": cpu_limit(root) or 0, "slurm": slurm.get("cores", 0)}
    by = min((name for name, cores in limits.items() if cores), key=lambda name: limits[name])
    vectors = tuple(name for flag, name in VECTORS.items() if flag in flags)
    cpu = Cpu(
        model=model,
        num_cores=max(1, int(limits[by])),
        num_cores_of_machine=num_listed,
        ghz=ghz,
        vectors=vectors,
    )
    return cpu, by


def parse_cpuinfo(text: str) -> tuple[str, float, frozenset[str], int]:
    """Return model, clock in GHz (0 where it is not told), flags and number of processors of /proc/cpuinfo."""
    fields = dict(re.findall(r"^([^:\n]+?)\s*:[ \t]*(.*)$", text, re.MULTILINE))
    flags = frozenset(fields.get("flags", fields.get("Features", "")).split())
    ghz = float(fields.get("cpu MHz", 0) or 0) / 1000
    if named := re.search(r"@\s*([\d.]+)\s*GHz", fields.get("model name", "")):
        ghz = float(named[1])
    return fields.get("model name", ""), round(ghz, 3), flags, len(re.findall(r"^processor\s*:", text, re.MULTILINE))


def _memory(root: Path) -> tuple[float, float]:
    """Return GiB in the machine and free in it."""
    text = (root / "proc/meminfo").read_text(encoding="utf-8")
    sizes = {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}
    return sizes["MemTotal"] / 2**20, sizes.get("MemAvailable", sizes["MemTotal"]) / 2**20


def _network(root: Path) -> tuple[str, ...]:
    """Return adapters as `mlx5_0 400 Gb/sec`."""
    found = []
    for file in sorted(root.glob("sys/class/infiniband/*/ports/1/rate")):
        rate = re.match(r"[\d.]+ Gb/sec", file.read_text(encoding="utf-8"))
        found.append(f"{file.parents[2].name} {rate[0] if rate else '?'}")
    return tuple(found)


def _free_disk(folder: Path) -> float:
    place = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize / GIB


def _gib(size: int | None) -> float:
    return size / GIB if size else 0.0

"""What a machine has, from recorded files of /proc, /sys and /dev, and from what drivers' tools print."""

from pathlib import Path

import pytest

from skyrl_nat.planning.gpus import Gpu, Gpus, find_gpus, parse_nvidia, parse_rocm, parse_topology, parse_torch
from skyrl_nat.planning.hardware import Hardware, look, parse_cpuinfo

XEON = """processor\t: {number}
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
cpu MHz\t\t: 3799.998
flags\t\t: fpu vme sse2 fma avx avx2 avx512f avx512_bf16 amx_bf16 amx_tile

"""
EPYC = "processor\t: 0\nmodel name\t: AMD EPYC 7763 64-Core Processor\ncpu MHz\t\t: 2450.000\nflags\t\t: fpu avx avx2\n"
ARM = "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd evtstrm sve\n\nprocessor\t: 1\nFeatures\t: fp asimd\n"
MEMORY = "MemTotal:       65536000 kB\nMemFree:         1000000 kB\nMemAvailable:   32768000 kB\n"
GIB = 2**30
TOPOLOGY = """\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\x1b[0m
GPU0\t X \tNV18\tNV18\tPIX\t0-47
GPU1\tNV18\t X \tNV18\tSYS\t0-47
GPU2\tNV18\tNV18\t X \tNODE\t0-47
NIC0\tPIX\tSYS\tNODE\t X

Legend:
"""


def recorded(root: Path, cpuinfo: str = XEON.format(number=0), **files: str) -> Path:
    """Write a recorded tree; names have `__` for slashes."""
    for name, text in {"proc__cpuinfo": cpuinfo, "proc__meminfo": MEMORY, **files}.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def seen(root: Path, **variables: str) -> Hardware:
    """Look at a recorded tree."""
    return look(root, root, variables)


def test_cpuinfo_of_intel_amd_and_arm():
    text = XEON.format(number=0) + XEON.format(number=1)
    model, ghz, flags, number = parse_cpuinfo(text)
    assert (ghz, number) == (2.7, 2), "the clock in the name is not the boosted one"
    assert model.startswith("Intel(R) Xeon(R)")
    assert {"amx_tile", "avx512f", "avx2"} <= flags
    assert parse_cpuinfo(EPYC)[1] == 2.45
    assert parse_cpuinfo(ARM)[1:] == (0.0, frozenset({"fp", "asimd"}), 2)


@pytest.mark.parametrize(
    ("cpuinfo", "vectors", "flops"),
    [
        (XEON.format(number=0), ("AMX", "AVX-512", "AVX2"), 2.7e9 * 64),
        (EPYC, ("AVX2",), 2.45e9 * 32),
        (ARM, ("NEON",), 2 * 2.5e9 * 16),
    ],
)
def test_vectors_say_what_cores_compute(tmp_path: Path, cpuinfo: str, vectors: tuple[str, ...], flops: float):
    found = seen(recorded(tmp_path, cpuinfo)).cpu
    assert found.vectors == vectors
    assert found.flops == pytest.approx(flops)


def test_the_tightest_of_machine_control_group_and_slurm_counts(tmp_path: Path):
    cpuinfo = "".join(XEON.format(number=number) for number in range(8))
    root = recorded(tmp_path, cpuinfo)
    assert (seen(root).cpu.num_cores, seen(root).cores_limited_by) == (8, "machine")
    assert seen(root).memory_gib == pytest.approx(62.5)
    recorded(
        tmp_path,
        cpuinfo,
        proc__self__cgroup="0::/\n",
        **{"sys__fs__cgroup__cpu.max": "400000 100000", "sys__fs__cgroup__memory.max": str(20 * GIB)},
    )
    assert (seen(root).cpu.num_cores, seen(root).cores_limited_by) == (4, "cgroup")
    assert (seen(root).memory_gib, seen(root).memory_limited_by) == (20, "cgroup")
    job = {"SLURM_JOB_ID": "1", "SLURM_CPUS_ON_NODE": "2", "SLURM_MEM_PER_NODE": "10240"}
    found = seen(root, **job)
    assert (found.cpu.num_cores, found.cores_limited_by) == (2, "slurm")
    assert (found.memory_gib, found.memory_limited_by) == (10, "slurm")
    assert found.free_memory_gib == 10
    assert found.cpu.num_cores_of_machine == 8


def test_network_adapters_are_listed_with_their_rates(tmp_path: Path):
    root = recorded(tmp_path, sys__class__infiniband__mlx5_0__ports__1__rate="400 Gb/sec (4X NDR)\n")
    assert seen(root).network == ("mlx5_0 400 Gb/sec",)


def test_nvidias_table_is_read():
    printed = "NVIDIA H100 80GB HBM3, 81559, Disabled\nNVIDIA A100-SXM4-40GB, 40960, Enabled\nTesla T4, 15360, [N/A]\n"
    assert parse_nvidia(printed) == (
        Gpu("NVIDIA H100 80GB HBM3", 81559),
        Gpu("NVIDIA A100-SXM4-40GB", 40960, is_split=True),
        Gpu("Tesla T4", 15360),
    )


def test_the_links_between_cards_are_read_and_the_weakest_counts():
    assert parse_topology(TOPOLOGY) == "NV18"
    assert parse_topology(TOPOLOGY.replace("GPU1\tNV18", "GPU1\tSYS")) == "SYS"
    assert parse_topology("\tGPU0\nGPU0\t X \n") == ""
    assert parse_topology("") == ""


def test_rocms_json_is_read_in_the_order_of_numbers():
    printed = (
        '{"card10": {"Card Series": "MI300X", "VRAM Total Memory (B)": "206141652992"},'
        ' "card2": {"Card Model": "0x74a1", "VRAM Total Memory (B)": "1073741824"}, "system": {}}'
    )
    assert parse_rocm(printed) == (Gpu("0x74a1", 1024), Gpu("MI300X", 196592))
    assert parse_rocm("no json") == ()


def test_what_pytorch_lists_says_which_of_both_it_was_built_for():
    assert parse_torch('{"kind": "rocm", "cards": [["MI300X", 196592]]}') == Gpus(
        "rocm", (Gpu("MI300X", 196592),), found_by="torch"
    )
    assert parse_torch('{"kind": "cuda", "cards": []}').kind == "none"
    assert parse_torch("") == Gpus("none")


def test_a_drivers_tool_is_asked_where_there_is_one(tmp_path: Path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\n[ \"$1\" = topo ] || echo 'NVIDIA H200, 143771, Disabled'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = seen(recorded(tmp_path))
    assert found.gpus == Gpus("cuda", (Gpu("NVIDIA H200", 143771),), found_by="nvidia-smi")
    assert (found.machine.name, found.machine.capacity_gib) == ("NVIDIA H200", 140.4)


def test_a_tool_that_fails_finds_nothing(tmp_path: Path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 9\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert find_gpus(recorded(tmp_path)) == Gpus("none")
    assert not seen(tmp_path).machine.is_gpu


def test_a_card_without_a_data_sheet_has_its_own_memory():
    hardware = look()
    card = Gpu("NVIDIA L40S", 46068)
    machine = Hardware(
        cpu=hardware.cpu,
        memory_gib=1,
        free_memory_gib=1,
        memory_limited_by="machine",
        cores_limited_by="machine",
        gpus=Gpus("cuda", (card,)),
        network=(),
        disk_gib=1,
        slurm={},
    ).machine
    assert machine.capacity_gib == pytest.approx(44.99, abs=0.01)
    assert "L40S" in machine.name


def test_this_machine_is_seen():
    found = look()
    assert 1 <= found.cpu.num_cores <= found.cpu.num_cores_of_machine
    assert 0 < found.free_memory_gib <= found.memory_gib
    assert found.disk_gib > 0

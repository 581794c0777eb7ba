"""Limits of control groups and Slurm, from recorded files and variables."""

from pathlib import Path

import pytest

from skyrl_nat.planning.limits import count_listed, cpu_limit, memory_limit, slurm_limits

GIB = 2**30


def write(root: Path, files: dict[str, str]) -> Path:
    """Write a recorded tree."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_version_2_takes_the_tightest_group_on_the_way_up(tmp_path: Path):
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/job/step\n",
            "sys/fs/cgroup/user.slice/job/step/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/job/memory.max": f"{12 * GIB}\n",
            "sys/fs/cgroup/user.slice/memory.max": f"{40 * GIB}\n",
            "sys/fs/cgroup/user.slice/job/step/cpu.max": "max 100000\n",
            "sys/fs/cgroup/user.slice/job/cpu.max": "350000 100000\n",
            "sys/fs/cgroup/user.slice/cpuset.cpus.effective": "0-7\n",
        },
    )
    assert memory_limit(root) == 12 * GIB
    assert cpu_limit(root) == 3.5


def test_version_1_has_a_tree_for_each_controller(tmp_path: Path):
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/slurm/job_7\n3:cpuset:/slurm/job_7\n2:cpu,cpuacct:/\n0::/\n",
            "sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes": f"{8 * GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpuset/slurm/job_7/cpuset.cpus": "0-1,8\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert memory_limit(root) == 8 * GIB
    assert cpu_limit(root) == 3


def test_a_container_that_sees_the_hosts_path_finds_its_own_root(tmp_path: Path):
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/system.slice/docker-0a1b.scope\n",
            "sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/cpu.max": "200000 100000\n",
        },
    )
    assert (memory_limit(root), cpu_limit(root)) == (4 * GIB, 2.0)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"proc/self/cgroup": "0::/\n"},
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/cpu.max": "max 100000\n"},
        {"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
    ],
)
def test_no_limit_is_none(tmp_path: Path, files: dict[str, str]):
    root = write(tmp_path, files)
    assert memory_limit(root) is None
    assert cpu_limit(root) is None


@pytest.mark.parametrize(("text", "number"), [("0", 1), ("0-3", 4), ("0-1,4-6,9", 6)])
def test_lists_are_counted(text: str, number: int):
    assert count_listed(text) == number


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {}),
        ({"SLURM_CPUS_ON_NODE": "4"}, {}),
        (
            {"SLURM_CPUS_ON_NODE": "96", "SLURM_MEM_PER_NODE": "1024000", "SLURM_JOB_GPUS": "0-7"},
            {"cores": 96, "memory_mib": 1_024_000, "gpus": 8},
        ),
        (
            {"SLURM_JOB_CPUS_PER_NODE": "16(x2)", "SLURM_MEM_PER_CPU": "2000", "SLURM_JOB_NUM_NODES": "2"},
            {"cores": 16, "memory_mib": 32_000, "nodes": 2},
        ),
        ({"SLURM_GPUS_ON_NODE": "4", "SLURM_NNODES": "3"}, {"gpus": 4, "nodes": 3}),
        ({"SLURM_GPUS_PER_NODE": "h100:8", "SLURM_MEM_PER_NODE": "0"}, {"gpus": 8}),
    ],
)
def test_a_slurm_job_says_what_it_was_given(variables: dict[str, str], expected: dict[str, int]):
    job = {"SLURM_JOB_ID": "17"} if expected else {}
    assert slurm_limits({**job, **variables}) == expected

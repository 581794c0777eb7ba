"""A real Slurm for the modules that submit jobs."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster, slurm_cluster


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Have a folder for Slurm and its jobs; munge's socket and Ray's must have short paths."""
    with tempfile.TemporaryDirectory(prefix="skyrl-nat-slurm-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def slurm(folder: Path, request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    """Start Slurm; a job that is put back waits for the module's `BACK_S` there, 120 s where it has none."""
    (folder / "slurm").mkdir()
    with slurm_cluster(folder / "slurm", getattr(request.module, "BACK_S", 120)) as cluster:
        yield cluster

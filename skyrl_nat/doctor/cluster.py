"""Section `cluster`: ports, shared memory, NCCL, clocks and the disk of the run root."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from skyrl_nat.config.run import RunConfig
from skyrl_nat.data.task_files import resolve_file
from skyrl_nat.doctor.check import Check
from skyrl_nat.doctor.clock import check_even, check_nodes, check_not_behind
from skyrl_nat.doctor.file_system import check_folder, check_free_disk
from skyrl_nat.doctor.nccl import check_nccl
from skyrl_nat.doctor.ports import check_free_port, check_named_ports, named_ports
from skyrl_nat.doctor.shared_memory import check_shared_memory


def check_cluster(config: RunConfig, num_steps: int | None = None) -> list[Check]:
    """Return the checks of this machine and, where Ray runs already, of its nodes' clocks.

    Args:
        config: The run.
        num_steps: Of the run; None where nobody knows.
    """
    root = Path(config.root_dir).expanduser()

    def offsets() -> Mapping[str, tuple[float, float]]:
        from skyrl_nat.cluster.clocks import clock_offsets  # Ray: seconds, where there is a cluster alone

        return clock_offsets(config.cluster)

    return [
        check_free_port(),
        check_named_ports(named_ports(config)),
        check_shared_memory(config),
        *check_nccl(config, {**os.environ, **config.cluster.environment}),
        check_even(),
        check_not_behind(_dated_files(config, root), time.time()),
        check_nodes(config.cluster.ray_address, offsets),
        *check_folder(root),
        check_free_disk(config, num_steps or config.trainer.steps or None),
    ]


def _dated_files(config: RunConfig, root: Path) -> list[Path]:
    """Return the files whose times a run goes by: its data, and checkpoints in its root."""
    environment = config.environment
    names = [*environment.train_files, *environment.validation_files]
    data = [path for name in names if (path := resolve_file(name)).is_file()]
    return [*data, *root.glob("*/checkpoints/step_*/manifest.json")]

"""From a checkpoint to a model's folder that everybody can load."""

import contextlib
import shutil
from pathlib import Path

from skyrl_nat.checkpoint.manager import CheckpointManager, held
from skyrl_nat.checkpoint.pretrained import resolve_model
from skyrl_nat.cluster.topology import start_topology
from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller.opening import find_checkpoint
from skyrl_nat.errors import ConfigError
from skyrl_nat.monitoring.console import ConsoleBackend


async def export(config: RunConfig, target: Path, console: ConsoleBackend, fetched: CheckpointManager) -> Path:
    """Write weights, config and tokenizer as a Hugging Face folder, which appears only when it is complete.

    Policy ranks are started as in training, and nothing else.

    Args:
        config: Of the run; `resume` names the checkpoint.
        target: Must not exist.
        console: Says what is going on.
        fetched: Where a copy of a checkpoint from a URL is put.

    Raises:
        ConfigError: The run has no checkpoint.
        CheckpointError: It is damaged, or the folder cannot be written.
    """
    start = find_checkpoint(config, fetched)
    if start is None:
        raise ConfigError(
            f"{config.run_dir} must hold a checkpoint to export, found none. Train with checkpoint.save_final"
        )
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    console.status(f"starting Ray and the policy to export {start.name}")
    with held(start), contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, part, ignore_errors=True)
        async with start_topology(config, resolve_model(config.model.path), 1, is_playing=False) as topology:
            await topology.policy.call_all("load", str(start / "policy"))
            await topology.policy.call_all("export_hf", str(part.resolve()))
        part.rename(target)
        undo.pop_all()
    return target


def require_new(target: Path) -> None:
    """Refuse a folder that is there already.

    Raises:
        ConfigError: With its name.
    """
    if target.exists():
        raise ConfigError(f"The folder to export into must be new, {target} is there already. Name another")

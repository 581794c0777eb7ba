"""What is served: a run's checkpoint, a model, a LoRA adapter or a GGUF file becomes files and a server's command."""

import contextlib
import hashlib
import importlib.metadata
import json
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from skyrl_nat.checkpoint.adapters import ADAPTER, is_adapter
from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.checkpoint.manifest import MANIFEST
from skyrl_nat.checkpoint.pretrained import fingerprint, resolve_model
from skyrl_nat.config.cluster import Device
from skyrl_nat.config.load import load_config, save_config
from skyrl_nat.config.model import LoraConfig
from skyrl_nat.config.rollout import EngineKind
from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller.opening import find_checkpoint
from skyrl_nat.controller.subject import Subject, opened
from skyrl_nat.deploy.policy_client import Endpoint
from skyrl_nat.deploy.server import ServerPlan
from skyrl_nat.engines.model_folder import read_stop_token_ids
from skyrl_nat.engines.vllm_arguments import adapter_arguments, engine_arguments, environment_of, serve_flags
from skyrl_nat.errors import ConfigError
from skyrl_nat.export.exporting import Wanted, export
from skyrl_nat.monitoring.console import ConsoleBackend
from skyrl_nat.rollouts.chat_response import MODEL_NAME

BASE_NAME = "base"
"""What the untrained model is called where an adapter is served beside it."""
HOST = "127.0.0.1"
CONFIG = "served.yaml"
LOG = "server.log"
MODELS = "models"
_NUM_THREADS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Files of a policy, and the configuration that it was trained with."""

    name: str
    """For people."""
    config: RunConfig
    model: Path
    """Folder with weights and tokenizer; of an adapter or a GGUF file, its model's."""
    adapter: Path | None = None
    """Served beside its model; None where the weights are whole."""
    weights: str = ""
    """Fingerprint of what is new in it."""


@contextlib.asynccontextmanager
async def prepared(what: str, checkpoint: str, overrides: Sequence[str], folder: Path) -> AsyncIterator[Material]:
    """Make a subject ready to be served; what is made only for that goes afterwards.

    Args:
        what: As for `skyrl-nat evaluate`.
        checkpoint: Of a run: `latest`, `best`, a folder or a URL.
        overrides: Of the config.
        folder: Of the deployment; keeps exported checkpoints, which are exported once.

    Raises:
        ConfigError: It is none of these.
        CheckpointError: The checkpoint is damaged, or cannot be written.
    """
    path = Path(what)
    if is_adapter(path):
        config = load_config(overrides)
        if config.engine.kind is EngineKind.vllm:
            yield _material_of_adapter(path, config)
            return
    with opened(what, checkpoint, overrides) as subject:
        model = await _exported(subject, folder) if subject.is_run else resolve_model(subject.config.model.path)
        weights = Path(subject.config.engine.gguf) if subject.config.engine.gguf else model
        yield Material(name=subject.name, config=subject.config, model=model, weights=fingerprint(weights))


def server_plan(material: Material, folder: Path, *, probation_s: float) -> ServerPlan:
    """Return how a policy is served on this machine, with the numbers and the context length of its training.

    Args:
        material: What is served.
        folder: Of the deployment; gets the server's log.
        probation_s: See `ServerPlan`.
    """
    config, port = material.config, _free_port()
    is_vllm = config.engine.kind is EngineKind.vllm
    command = _vllm_command(material, port) if is_vllm else _engine_command(material, folder, port)
    is_cpu = config.cluster.device is Device.cpu
    return ServerPlan(
        command=tuple(command),
        endpoint=Endpoint(
            base_url=f"http://{HOST}:{port}/v1",
            model=MODEL_NAME,
            timeout_s=config.engine.request_timeout_s,
            stop_token_ids=tuple(read_stop_token_ids(material.model)),
        ),
        log=folder / LOG,
        environment=environment_of(is_cpu=is_cpu, num_threads=_NUM_THREADS) if is_vllm else {},
        start_timeout_s=config.engine.start_timeout_s,
        probation_s=probation_s,
        about={"name": material.name, "weights": material.weights[:16], "engine": str(config.engine.kind)},
    )


def _material_of_adapter(path: Path, config: RunConfig) -> Material:
    model = resolve_model(config.model.path)
    return Material(name=path.name, config=config, model=model, adapter=path.resolve(), weights=fingerprint(path))


async def _exported(subject: Subject, folder: Path) -> Path:
    """Return the folder of a run's checkpoint as everybody can load it, tested with the engine that will serve it."""
    fetched = CheckpointManager(subject.scratch)
    start = find_checkpoint(subject.config, fetched)
    if start is None:
        raise ConfigError(f"{subject.config.run_dir} must hold a checkpoint to deploy, found none. Train it first")
    mark = hashlib.sha256(f"{start.resolve()} {fingerprint(start / MANIFEST)}".encode()).hexdigest()
    target = folder / MODELS / f"{subject.name}-{start.name}-{mark[:8]}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with ConsoleBackend() as console:
            chosen = replace(subject, config=replace(subject.config, resume=str(start)))
            await export(chosen, Wanted(folder=target), console)
    return target.resolve()


def _vllm_command(material: Material, port: int) -> list[str]:
    config = material.config
    arguments = engine_arguments(
        material.model,
        config.engine,
        max_model_len=config.rollout.max_total_tokens,
        is_cpu=config.cluster.device is Device.cpu,
        seed=config.seed,
    )
    flags = ["--host", HOST, "--port", str(port), *serve_flags(arguments)]
    name = MODEL_NAME
    if material.adapter is not None:
        name = BASE_NAME
        rank = adapter_arguments(LoraConfig(rank=_rank(material.adapter)))["max_lora_rank"]
        flags += ["--enable-lora", "--max-lora-rank", str(rank), "--lora-modules", f"{MODEL_NAME}={material.adapter}"]
    return [*_vllm_program(), "--model", str(material.model), "--served-model-name", name, *flags]


def _vllm_program() -> list[str]:
    """Return `vllm serve`, or the same server where the package goes by another name than its command expects."""
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    return [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"]


def _rank(adapter: Path) -> int:
    try:
        return int(json.loads((adapter / ADAPTER).read_text(encoding="utf-8"))["r"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{adapter / ADAPTER} must say the adapter's rank, but: {error}. Save it with peft"
        ) from error


def _engine_command(material: Material, folder: Path, port: int) -> list[str]:
    file = folder / CONFIG
    folder.mkdir(parents=True, exist_ok=True)
    save_config(material.config, file)
    program = [sys.executable, "-m", "skyrl_nat.cli", "deploy", "engine"]
    return [*program, str(material.model), "--config", str(file.resolve()), "--host", HOST, "--port", str(port)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]

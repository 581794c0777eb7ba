"""From a request to a job: everything that can be refused is refused here, before anything is written."""

import re
from collections.abc import Sequence
from pathlib import Path

from skyrl_nat.cluster.placement import CPUS_PER_NODE
from skyrl_nat.config.load import load_config
from skyrl_nat.config.overrides import parse_overrides, text_override
from skyrl_nat.errors import ConfigError
from skyrl_nat.service.catalogue import Environment, algorithms, experiments
from skyrl_nat.service.paths import inside
from skyrl_nat.service.routes.errors import ServiceError, config_field
from skyrl_nat.service.runner.backend import Capacity
from skyrl_nat.service.schemas import JOB_ID, TrainRequest
from skyrl_nat.service.settings import ServiceSettings
from skyrl_nat.service.store import Job, new_id

TASKS_FOLDER = "tasks"
"""Of a run folder: the tasks that the service makes for a Gymnasium environment."""
FIELDS = {
    "algorithm": "the field algorithm",
    "experiment": "the field experiment",
    "environment": "the address",
    "environment.family": "the address",
    "trainer.steps": "the field steps",
    "seed": "the field seed",
    "name": "the service",
    "root_dir": "the service",
    "resume": "the field resume",
    "cluster.ray_address": "the service",
}
"""Key that no override may set -> who sets it."""
GYMNASIUM_OVERRIDES = (
    "rollout.max_turns=20",
    "rollout.max_new_tokens=16",
    "rollout.max_total_tokens=2048",
    'rollout.stop=["\\n"]',
)
"""An answer is one action's name."""


def admit(
    request: TrainRequest,
    environment: Environment,
    settings: ServiceSettings,
    *,
    capacity: Capacity | None,
    idempotency_key: str | None,
) -> Job:
    """Return the job that a request asks for; nothing is written. One call at a time: Hydra has one state a process.

    Args:
        request: Of the form.
        environment: From the address.
        settings: Of the service.
        capacity: What Ray has in all; None where it is not known yet.
        idempotency_key: Of the request.

    Raises:
        ServiceError: It cannot be run, with the config key or the field.
    """
    _require_known(request, environment)
    _require_own_keys(request.overrides)
    job_id = new_id()
    run = _run_folder(request, settings.root_dir, job_id)
    arguments = _arguments(request, environment, settings, run)
    try:
        config = load_config(arguments)
    except ConfigError as error:
        raise ServiceError(422, "config", str(error), config_field(str(error), "overrides")) from error
    except RecursionError as error:
        raise ServiceError(422, "config", "an override must not nest that deep. Write less", "overrides") from error
    cpus = config.cluster.num_nodes * CPUS_PER_NODE
    gpus = float(config.cluster.num_nodes * config.cluster.num_gpus_per_node)
    if capacity is not None and not capacity.holds(cpus, gpus):
        raise ServiceError(
            422,
            "too_large",
            f"cluster.num_nodes must fit the cluster, which has {capacity}, but the job reserves {cpus:g} CPUs and "
            f"{gpus:g} GPUs. Lower cluster.num_nodes or cluster.num_gpus_per_node",
            "cluster.num_nodes",
        )
    return Job(
        id=job_id,
        environment=environment.name,
        algorithm=request.algorithm,
        name=request.name,
        run=run,
        steps=request.steps,
        overrides=tuple(request.overrides),
        arguments=tuple(arguments),
        cpus=cpus,
        gpus=gpus,
        body_hash=request.hash(environment.name),
        idempotency_key=idempotency_key,
    )


def _require_known(request: TrainRequest, environment: Environment) -> None:
    fitting = experiments(environment.name)
    for field, value, known in (
        ("algorithm", request.algorithm, algorithms()),
        ("experiment", request.experiment, fitting),
    ):
        if value is not None and value not in known:
            raise ServiceError(
                422, "invalid", f"{field} must be one of {', '.join(known) or 'none'}. See GET /environments", field
            )


def _require_own_keys(overrides: Sequence[str]) -> None:
    """Refuse overrides of what the request or the service says already, and those that read from elsewhere."""
    for number, override in enumerate(overrides):
        place = f"overrides.{number}"
        if "${" in override:
            raise ServiceError(422, "invalid", f"{place} must be a plain value. Write it without ${{…}}", place)
        try:
            key = parse_overrides([override])[0].key_or_group
        except ConfigError as error:
            raise ServiceError(422, "config", str(error), place) from error
        except RecursionError as error:
            raise ServiceError(422, "config", f"{place} must not nest that deep. Write less", place) from error
        if re.match(r"hydra(\.|/|$)", key):
            raise ServiceError(422, "invalid", f"{place} must be a key of the config, not Hydra's own. Drop it", place)
        if key in FIELDS:
            raise ServiceError(422, "invalid", f"{key} must come from {FIELDS[key]}. Drop {place}", place)


def _run_folder(request: TrainRequest, root: Path, job_id: str) -> str:
    """Return the name of the job's folder below the root: its own, or with `resume` the one that goes on."""
    if request.resume:
        if request.name is None:
            raise ServiceError(422, "invalid", "name must say which run folder goes on with resume. Add it", "name")
        folder = inside(root, request.name)
        if folder is None or not any(folder.glob("checkpoints/step_*/manifest.json")):
            raise ServiceError(
                422, "invalid", "name must be a run folder with a checkpoint to resume. See GET /checkpoints", "name"
            )
        return request.name
    if request.name is not None and ((root / request.name).exists() or re.fullmatch(JOB_ID, request.name)):
        raise ServiceError(
            409,
            "folder_in_use",
            "name must not be that of a run folder that is there. Set resume to go on in it, or choose another name",
            "name",
        )
    return job_id


def _arguments(request: TrainRequest, environment: Environment, settings: ServiceSettings, run: str) -> list[str]:
    root = settings.root_dir.resolve()
    made: list[str] = []
    if environment.gymnasium_id:
        for key, file in task_files(root / run).items():
            made.append(f"environment.{key}=[{text_override('', str(file))[1:]}]")
        made += GYMNASIUM_OVERRIDES
    return [
        *settings.overrides,
        *environment.overrides,
        *made,
        f"algorithm={request.algorithm}",
        *([f"experiment={request.experiment}"] if request.experiment else []),
        *request.overrides,
        f"trainer.steps={request.steps}",
        f"seed={request.seed}",
        text_override("root_dir", str(root)),
        text_override("name", run),
        f"resume={'latest' if request.resume else 'never'}",
    ]


def task_files(folder: Path) -> dict[str, Path]:
    """Return the files of tasks that the service makes, by config key of section `environment`."""
    return {f"{split}_files": folder / TASKS_FOLDER / f"{split}.parquet" for split in ("train", "validation")}

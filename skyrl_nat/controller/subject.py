"""What `skyrl-nat evaluate` was given: a run, one of its checkpoints, a model, a LoRA adapter, or a GGUF file."""

import contextlib
import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyrl_nat.checkpoint.adapters import is_adapter, merged_adapter
from skyrl_nat.checkpoint.manifest import MANIFEST
from skyrl_nat.checkpoint.pretrained import fingerprint, resolve_model
from skyrl_nat.config.load import config_from_file, load_config
from skyrl_nat.config.run import RunConfig
from skyrl_nat.config.secrets import refuse_secrets
from skyrl_nat.controller.opening import versions
from skyrl_nat.errors import ConfigError

if TYPE_CHECKING:
    from skyrl_nat.controller.run import Run

EVALUATIONS = "evaluations"
"""Folder of the evaluations: in a run's folder, else in `root_dir`."""
CONFIG = "config.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is evaluated, ready to be opened."""

    name: str
    """Of the run or the model, for people."""
    config: RunConfig
    is_run: bool
    """True of a run, whose own record gets the figures; its tasks and settings are those that it was trained with."""
    home: Path
    """Folder for evaluations."""
    scratch: Path
    """For what is needed only meanwhile."""
    adapter: Path | None = None
    """Folder of the adapter that was named, whose sum with its model `config.model.path` then is."""
    base: Path | None = None
    """Folder of the adapter's model."""

    def folder(self, about: Mapping[str, Any]) -> Path:
        """Return where an evaluation is kept if nobody says otherwise: another place for whatever differs."""
        name = f"step_{about['step']:06d}" if self.is_run else self.name
        mark = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        return self.home / f"{name}-{mark[:8]}"

    def about(self, run: "Run", num_samples: int) -> dict[str, Any]:
        """Return what the evaluation is about: two of the same words play the same."""
        config = self.config
        model = Path(config.engine.gguf) if config.engine.gguf else run.model_path
        weights = model if run.started_from is None else run.started_from / MANIFEST
        environment = dataclasses.asdict(config.environment)
        return {
            "model": self.name,
            "step": run.step,
            "weights": fingerprint(weights),
            "tasks": {"number": len(run.data.validation_tasks), "hash": _hash(run.data.validation_tasks)},
            "rollout": _plain(dataclasses.asdict(config.rollout)),
            "environment": _plain({name: value for name, value in environment.items() if not name.endswith("_files")}),
            "engine": {"kind": str(config.engine.kind), "deterministic": config.engine.deterministic},
            "seed": config.seed,
            "samples": num_samples,
            "versions": versions(),
        }


@contextlib.contextmanager
def opened(what: str, checkpoint: str, overrides: Sequence[str]) -> Iterator[Subject]:
    """Find out what is to be evaluated.

    Args:
        what: A run's folder, the folder of one of its checkpoints, a model's folder or name, an adapter's folder, or a
            GGUF file; an adapter's model, and the tokenizer of a GGUF file, is that of `model.path`.
        checkpoint: Of a run: `latest`, `best`, a folder or a URL.
        overrides: Of the config: of single keys for a run, as for training for a model.

    Raises:
        ConfigError: It is none of these.
    """
    path = Path(what)
    if (path / MANIFEST).is_file() and (path.resolve().parent.parent / CONFIG).is_file():
        path, checkpoint = path.resolve().parent.parent, str(path)
    if (path / CONFIG).is_file():
        with tempfile.TemporaryDirectory(prefix="fetched-", dir=path) as scratch:
            yield _subject_of_run(path.resolve(), checkpoint, overrides, Path(scratch))
        return
    if checkpoint != "latest":
        raise ConfigError(f"--checkpoint must be used with a run's folder, {what} is none. Name the run")
    with tempfile.TemporaryDirectory(prefix="skyrl-nat-evaluation-") as folder:
        yield _subject_of_model(what, overrides, Path(folder))


def _subject_of_run(path: Path, checkpoint: str, overrides: Sequence[str], scratch: Path) -> Subject:
    config = config_from_file(path / CONFIG, overrides)
    config.root_dir, config.name, config.resume = str(path.parent), path.name, checkpoint
    refuse_secrets(config)
    return Subject(name=path.name, config=config, is_run=True, home=path / EVALUATIONS, scratch=scratch)


def _subject_of_model(what: str, overrides: Sequence[str], scratch: Path) -> Subject:
    added, adapter, base = [f"model.path={what}"], None, None
    if Path(what).suffix == ".gguf":
        added = ["engine.kind=gguf", f'engine.gguf="{what}"']
    elif is_adapter(Path(what)):
        adapter, base = Path(what), resolve_model(load_config(overrides).model.path)
        added = [f"model.path={merged_adapter(adapter, base, scratch / 'merged')}"]
    config = load_config([*overrides, *added])
    home = Path(config.root_dir) / EVALUATIONS
    config.root_dir, config.name, config.resume = str(scratch), "evaluation", "never"
    config.tracking.backends = []
    return Subject(
        name=Path(what).name,
        config=config,
        is_run=False,
        home=home,
        scratch=scratch,
        adapter=adapter,
        base=base,
    )


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(data, default=str))


def _hash(tasks: Sequence[Any]) -> str:
    """Return the SHA-256 of tasks, their hidden parts included."""
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(json.dumps(dataclasses.asdict(task), sort_keys=True, default=str).encode())
    return digest.hexdigest()

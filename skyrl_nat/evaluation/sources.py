"""Where the rollouts of a comparison are: an evaluation's folder, a run's, or a file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.folder import ABOUT, read_about
from skyrl_nat.rollouts.recorded import read_groups
from skyrl_nat.rollouts.recorder import rollout_file
from skyrl_nat.types import RolloutGroup

NOTED = ("tasks", "rollout", "environment", "seed", "engine", "versions")
"""What two evaluations should share, of what they are about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One evaluation to compare."""

    name: str
    """For people."""
    path: Path
    """File of the rollouts."""
    groups: list[RolloutGroup]
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Empty where nobody wrote it down."""

    def page_folder(self, before: "Source") -> Path:
        """Return where the page about this one and an earlier one is put if nobody says otherwise."""
        names = [Path(source.name).resolve().name.replace("@", "-") for source in (before, self)]
        home = self.path.parent if self.path == Path(self.name) else self.path.parent.parent
        return home / f"comparison-{'-'.join(names)}"


def read_source(text: str, label: str) -> Source:
    """Read an evaluation.

    Args:
        text: Folder of `skyrl-nat evaluate`; a run's folder, for its newest evaluation, with `@STEP` for that step's;
            or a file of rollouts.
        label: `greedy` or `sampled`; only the first kind of folder has both.

    Raises:
        DataError: There is no evaluation.
    """
    path = Path(text)
    if path.is_file():
        return Source(name=text, path=path, groups=_groups(path))
    if (path / ABOUT).is_file():
        file = path / f"{label}.jsonl"
        if not file.is_file():
            raise DataError(f"{path} must hold {file.name}, which a whole evaluation has. Run skyrl-nat evaluate again")
        about = read_about(path) or {}
        return Source(name=text, path=file, groups=_groups(file), about=about)
    folder, _, step = text.partition("@")
    file = _of_run(Path(folder), step)
    return Source(name=f"{folder}@{int(file.stem.rpartition('_')[2])}", path=file, groups=_groups(file))


def differences(before: Source, after: Source) -> list[str]:
    """Return what else differs between two evaluations than the model, as sentences."""
    if not before.about or not after.about:
        return []
    return [
        f"the evaluations differ in {name}: {before.about.get(name)} and {after.about.get(name)}"
        for name in NOTED
        if before.about.get(name) != after.about.get(name)
    ]


def _of_run(folder: Path, step: str) -> Path:
    known = sorted((folder / "rollouts").glob("eval_*.jsonl"))
    if not known:
        raise DataError(
            f"{folder} must be a folder of skyrl-nat evaluate, a run with an evaluation or a file of rollouts, found "
            f"none of them{'' if folder.exists() else ' (there is nothing of that name)'}. Evaluate first"
        )
    if not step:
        return known[-1]
    file = rollout_file(folder / "rollouts", int(step), "eval") if re.fullmatch(r"\d+", step) else None
    if file not in known:
        steps = ", ".join(str(int(path.stem.rpartition("_")[2])) for path in known)
        raise DataError(f"{folder} must have an evaluation of step {step}, it has those of {steps}. Choose one")
    return file


def _groups(path: Path) -> list[RolloutGroup]:
    groups = read_groups(path)
    if not groups:
        raise DataError(f"{path} must hold rollouts, it is empty. Evaluate again")
    return groups

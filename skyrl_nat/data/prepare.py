"""From nothing to a data set: tasks made and proved, split, written with a manifest and a report."""

import asyncio
import json
import logging
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skyrl_nat.config.environment import Form
from skyrl_nat.config.run import RunConfig
from skyrl_nat.data.making.episodes import play_solution
from skyrl_nat.data.making.maker import MadeStore, Maker
from skyrl_nat.data.planner.ask import Planner
from skyrl_nat.data.planner.pipeline import plan_tasks, read_requests, summary
from skyrl_nat.data.replacing import replacing
from skyrl_nat.data.report import describe, to_markdown
from skyrl_nat.data.specs import write_tasks
from skyrl_nat.data.synthesis.library import OTHER_FAMILIES, HoldOut, load_families, split_library
from skyrl_nat.data.synthesis.synthesize import synthesize
from skyrl_nat.environments.nat_agent.workbench import Workbench
from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.types import Task

MIN_SAMPLES = 20
DEFAULT_MIX = {1: 25, 2: 25, 3: 25, 4: 15, 5: 10}
"""Difficulty -> share of the tasks."""
VALIDATION_IN = 10
"""One task in so many is held out."""
WORK_FOLDER = ".prepare"
WORK_FILES = ("options.json", "made.jsonl")
LEDGER_FOLDER = "planner"
"""Stays beside the data set: every call and what it cost."""
_logger = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class PrepareOptions:
    """What to prepare."""

    output_dir: Path
    num_samples: int = 1000
    seed: int = 0
    mix: Mapping[int, float] = field(default_factory=lambda: dict(DEFAULT_MIX))
    """Difficulty -> share."""
    hold_out: HoldOut = HoldOut.families
    """What of the library no training task has; a planner's requests are always in one split."""
    tasks_per_function: int = 1
    """How often the training set may ask for the same functions, in other words and with other examples."""
    num_workers: int = 0
    """Tasks made at once; 0 takes one per core."""
    form: Form = Form.one_shot
    """Of the reference episodes."""
    has_planner: bool = False
    """Whether a planner writes the tasks; otherwise they come from the library, and no API is needed."""
    requests: Path | None = None
    """What users want, for the planner; None takes the shipped requests."""

    def __post_init__(self) -> None:
        """Refuse what cannot be made.

        Raises:
            ConfigError: With the option's name.
        """
        if self.num_samples < MIN_SAMPLES:
            raise ConfigError(f"num_samples must be >= {MIN_SAMPLES}, got {self.num_samples}. Ask for more")
        if not self.mix or any(level not in range(1, 6) or not share >= 0 for level, share in self.mix.items()):
            raise ConfigError(
                f"mix must give difficulties 1 to 5 a share >= 0, got {dict(self.mix)}. Write 1:0.5,2:0.5"
            )
        if self.tasks_per_function < 1:
            raise ConfigError(f"tasks_per_function must be >= 1, got {self.tasks_per_function}. Leave it out for 1")
        if self.has_planner and self.tasks_per_function > 1:
            raise ConfigError(
                f"tasks_per_function must be 1 with a planner, got {self.tasks_per_function}. Leave it out: a planner "
                "writes every task anew"
            )
        if self.has_planner and self.hold_out is not HoldOut.families:
            raise ConfigError(
                f"hold_out must be families with a planner, got {self.hold_out}. Leave it out: there are no variants"
            )
        if not sum(self.mix.values()) > 0:
            raise ConfigError(f"mix must give some difficulty a share, got {dict(self.mix)}. Raise one")

    @property
    def counts(self) -> dict[str, int]:
        """Split -> number of tasks; a tenth is held out, rounded down, and as many of other families come on top."""
        held_out = self.num_samples // VALIDATION_IN
        others = {OTHER_FAMILIES: held_out} if self.hold_out is HoldOut.both else {}
        return {"train": self.num_samples - held_out, "validation": held_out} | others


def parse_mix(text: str) -> dict[int, float]:
    """Return difficulty -> share from `1:0.5,2:0.5`.

    Raises:
        ConfigError: It is written otherwise.
    """
    try:
        pairs = [part.split(":") for part in text.split(",")]
        return {int(level): float(share) for level, share in pairs}
    except ValueError as error:
        raise ConfigError(f"mix must be written as 1:0.5,2:0.5, got {text!r}. Name difficulties and shares") from error


def prepare(options: PrepareOptions, config: RunConfig) -> dict[str, Any]:
    """Make a data set in `options.output_dir` and return its report.

    A run that was killed goes on where it was: what was made lies in `.prepare/` until all is there.

    Raises:
        DataError: The folder holds something else, or not enough tasks can be made.
        ConfigError: The folder cannot be written.
    """
    started = time.monotonic()
    folder = options.output_dir
    _take_folder(folder, options)
    maker = Maker(
        config.environment,
        MadeStore(folder / WORK_FOLDER / "made.jsonl"),
        num_workers=options.num_workers or os.cpu_count() or 1,
    )
    try:
        source = (
            asyncio.run(_from_planner(options, config, maker)) if options.has_planner else _from_library(options, maker)
        )
        bench = Workbench(config.environment, maker.sandbox) if options.form is Form.multi_turn else None
        for split, tasks in source.tasks.items():
            write_tasks(tasks, folder / f"{split}.parquet")
            episodes = (play_solution(task, options.form, bench=bench) for task in tasks)
            _write_lines(folder / f"{split}_episodes.jsonl", episodes)
    finally:
        maker.close()
    manifest = {"options": _settings(options), **source.manifest}
    _write_json(folder / "manifest.json", manifest)
    report = describe(folder)
    _write_json(folder / "report.json", report)
    (folder / "report.md").write_text(to_markdown(report), encoding="utf-8")
    for name in WORK_FILES:
        (folder / WORK_FOLDER / name).unlink()
    (folder / WORK_FOLDER).rmdir()
    _logger.info("%d tasks in %.0f s", report["rows"], time.monotonic() - started)
    return report


@dataclass(frozen=True, slots=True)
class _Source:
    """Where tasks came from, and what is written of that."""

    tasks: dict[str, list[Task]]
    manifest: dict[str, Any]


def _from_library(options: PrepareOptions, maker: Maker) -> _Source:
    families = split_library(load_families(), options.hold_out, options.seed)
    # Variants that are held out are a sample of all: those of the training set give way.
    stays = ["train"] if options.hold_out is HoldOut.families else [split for split in families if split != "train"]
    repeats = {"train": options.tasks_per_function}
    made = synthesize(maker, families, options.counts, seed=options.seed, mix=options.mix, stays=stays, repeats=repeats)
    reasons = sorted(item.reason for item in made.rejected)
    manifest = {
        "families": {split: sorted(family.name for family in found) for split, found in families.items()},
        "rejected": {"number": len(reasons), "examples": reasons[:10]},
    }
    return _Source(made.tasks, manifest)


async def _from_planner(options: PrepareOptions, config: RunConfig, maker: Maker) -> _Source:
    requests = read_requests(options.requests)
    async with Planner(config.planner, options.output_dir / LEDGER_FOLDER) as planner:
        counts = options.counts
        planned = await plan_tasks(planner, maker, requests, counts, seed=options.seed, mix=options.mix)
        return _Source(planned.tasks, {"families": planned.requests, "planner": summary(planned, planner)})


def _settings(options: PrepareOptions) -> dict[str, Any]:
    return {
        "num_samples": options.num_samples,
        "seed": options.seed,
        "mix": {str(level): share for level, share in sorted(options.mix.items())},
        "form": options.form.value,
        "source": "planner" if options.has_planner else "library",
        "requests": str(options.requests or ""),
        **({} if options.hold_out is HoldOut.families else {"hold_out": options.hold_out.value}),
        **({} if options.tasks_per_function == 1 else {"tasks_per_function": options.tasks_per_function}),
    }


def _take_folder(folder: Path, options: PrepareOptions) -> None:
    """Make the folder, or go on in one that was begun with the same options."""
    begun, settings = folder / WORK_FOLDER / "options.json", _settings(options)
    if begun.exists() and json.loads(begun.read_text(encoding="utf-8")) != settings:
        raise DataError(
            f"{folder} must be new or begun with the same options, it was begun with others: "
            f"{begun.read_text(encoding='utf-8').strip()}. Use those, or another output_dir"
        )
    if not begun.exists() and any(folder.glob("*.parquet")):
        raise DataError(f"{folder} must not hold a data set yet, and does. Name another output_dir, or remove it")
    try:
        begun.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"output_dir must be a folder that can be written, but: {error}. Name another") from error
    begun.write_text(json.dumps(settings), encoding="utf-8")


def _write_lines(path: Path, rows: Iterable[Any]) -> None:
    with replacing(path) as part, part.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")

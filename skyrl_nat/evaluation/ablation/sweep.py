"""What is varied: variants, each a list of overrides with a name, and the runs that they are."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from skyrl_nat.config.environment import SlowChecks
from skyrl_nat.config.load import load_config
from skyrl_nat.config.overrides import parse_overrides, parse_sweep, text_override
from skyrl_nat.config.run import RunConfig
from skyrl_nat.errors import ConfigError

OWN = ("name", "root_dir", "resume", "seed")
"""Keys that an ablation sets itself."""
MAX_FOLDER_LETTERS = 80
WEIGHTS = "environment.reward_weights"
JUDGING = {
    WEIGHTS: "their rewards are on different scales, so that success alone decides",
    "environment.screen": "a suspected cheat counts as a failure only where it is drop",
}
"""Keys that may differ between variants -> what that does to their evaluations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to train."""

    name: str
    """For people; unique."""
    folder: str
    """The beginning of its runs' names: letters, digits and `._-`, unique in any case of letters."""
    overrides: tuple[str, ...]
    """Of this variant alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A variant with a seed."""

    name: str
    """Of its folder too."""
    seed: int
    overrides: tuple[str, ...]
    """All that `skyrl-nat train` gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Variants that are trained with the same seeds; the first one is the baseline."""

    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    overrides: tuple[str, ...]
    """Of all runs."""

    def run(self, variant: Variant, seed: int, root: Path) -> PlannedRun:
        """Return a run of a variant in a folder of runs."""
        name = f"{variant.folder}-seed{seed}"
        own = (f"seed={seed}", text_override("name", name), text_override("root_dir", str(root)), "resume=latest")
        return PlannedRun(name=name, seed=seed, overrides=(*self.overrides, *variant.overrides, *own))

    def runs(self, root: Path) -> list[PlannedRun]:
        """Return all runs, one variant after the other."""
        return [self.run(variant, seed, root) for variant in self.variants for seed in self.seeds]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data."""
        variants = [{"name": variant.name, "overrides": list(variant.overrides)} for variant in self.variants]
        return {"variants": variants, "seeds": list(self.seeds), "overrides": list(self.overrides)}


def make_sweep(variants: Mapping[str, Sequence[str]], seeds: Sequence[int], overrides: Sequence[str]) -> Sweep:
    """Return a sweep.

    Args:
        variants: Overrides by name, the baseline first.
        seeds: Of each variant's runs.
        overrides: Of all runs.

    Raises:
        ConfigError: There is nothing to compare, a seed is no seed, or a key is set in two places.
    """
    if len(variants) < 2:
        raise ConfigError(f"An ablation must have two variants or more, got {len(variants)}. Vary something")
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ConfigError(f"--seeds must be different numbers >= 0, got {list(seeds)}. Write for instance 0,1,2")
    _refuse(_keys(overrides), OWN, "the overrides of all runs", "an ablation sets it")
    for name, own in variants.items():
        keys = _keys(own)
        _refuse(keys, OWN, f"variant {name!r}", "an ablation sets it")
        _refuse(keys, _keys(overrides), f"variant {name!r}", "the overrides of all runs set it")
        _refuse([key for key, number in Counter(keys).items() if number > 1], keys, f"variant {name!r}", "it is twice")
    return Sweep(
        variants=tuple(
            Variant(name=name, folder=folder, overrides=tuple(own))
            for (name, own), folder in zip(variants.items(), _folders(variants), strict=True)
        ),
        seeds=tuple(seeds),
        overrides=tuple(overrides),
    )


def varied(words: Sequence[str], *, is_one_at_a_time: bool) -> dict[str, list[str]]:
    """Return variants by name from words such as `optimizer.lr=1e-5,3e-5`; the first has the first value of each.

    Args:
        words: A key with all its values each.
        is_one_at_a_time: Only variants that differ from the first one in one key, in the place of all combinations.

    Raises:
        ConfigError: A word cannot be read or names one value.
    """
    choices = [parse_sweep(word) for word in words]
    combinations: Iterable[Sequence[str]] = itertools.product(*choices)
    if is_one_at_a_time:
        first = [values[0] for values in choices]
        others = ([*first[:i], value, *first[i + 1 :]] for i, values in enumerate(choices) for value in values[1:])
        combinations = [first, *others]
    return {", ".join(combination): list(combination) for combination in combinations}


def read_variants(path: Path) -> dict[str, list[str]]:
    """Return variants by name from a YAML file: name -> list of overrides, an empty one for the plain baseline.

    Raises:
        ConfigError: The file holds something else, or a name twice.
    """
    must = f"{path} must be YAML with a list of overrides for each name"
    try:
        text = path.read_text(encoding="utf-8")
        root, data = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{must}, but: {' '.join(str(error).split())}. Correct it") from error
    if not isinstance(root, yaml.MappingNode) or not isinstance(data, dict):
        raise ConfigError(f"{must}, got something else. Write for instance `plain: []`")
    if len(data) < len(root.value):
        raise ConfigError(f"{must}, got a name twice. Rename one")
    for name, words in data.items():
        is_list = isinstance(words, list) and all(isinstance(word, str) for word in words)
        if not isinstance(name, str) or not name.strip() or not is_list:
            raise ConfigError(f"{must}, got {name!r}: {words!r}. Write for instance `plain: [algorithm=grpo]`")
    return data


def check_configs(sweep: Sweep, root: Path) -> list[str]:
    """Load the config of every variant, and return the keys of `JUDGING` in which they differ.

    Raises:
        ConfigError: One is refused, would not be evaluated at its end, or has other held-out tasks than the first.
    """
    configs = {variant.name: _load(sweep, variant, root) for variant in sweep.variants}
    first, *others = configs.items()
    for name, config in others:
        tasks, own = _held_out(first[1]), _held_out(config)
        if unlike := [key for key in tasks if tasks[key] != own[key]]:
            raise ConfigError(
                f"All variants must have the same held-out tasks, but {name!r} has another {', '.join(unlike)} than "
                f"{first[0]!r}. Set it for all runs"
            )
    return [key for key in JUDGING if len({repr(_value(config, key)) for config in configs.values()}) > 1]


def _load(sweep: Sweep, variant: Variant, root: Path) -> RunConfig:
    try:
        config = load_config(sweep.run(variant, sweep.seeds[0], root).overrides)
    except ConfigError as error:
        raise ConfigError(f"Variant {variant.name!r}: {error}") from error
    if not config.evaluation.before_and_after or not config.environment.validation_files:
        raise ConfigError(
            f"Variant {variant.name!r} must be evaluated before and after training, it is not. Set "
            "evaluation.before_and_after=true, and environment.validation_files"
        )
    return config


def _held_out(config: RunConfig) -> dict[str, Any]:
    return {
        "environment.family": config.environment.family,
        "environment.validation_files": config.environment.validation_files,
        "environment.max_difficulty": config.environment.max_difficulty,
        "environment.slow_checks": config.environment.slow_checks is not SlowChecks.never,
        "evaluation.num_tasks": config.evaluation.num_tasks,
        "rollout.eval_temperature": config.rollout.eval_temperature,
    }


def _value(config: RunConfig, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(config, section), name)


def _keys(words: Sequence[str]) -> list[str]:
    return [override.key_or_group for override in parse_overrides(words)]


def _refuse(keys: Sequence[str], taken: Sequence[str], where: str, why: str) -> None:
    for key in keys:
        if key in taken:
            raise ConfigError(f"{key} must be set in one place, got it in {where}, and {why}. Remove it there")


def _folders(names: Iterable[str]) -> list[str]:
    """Return a folder's name for each variant; where two would be the same, the later one gets a number."""
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        base = re.sub(r"[^A-Za-z0-9._]+", "-", name)[:MAX_FOLDER_LETTERS].strip("-._") or "variant"
        free = (folder for number in itertools.count(1) if (folder := _numbered(base, number)).casefold() not in taken)
        found.append(next(free))
        taken.add(found[-1].casefold())
    return found


def _numbered(base: str, number: int) -> str:
    return base if number == 1 else f"{base}-{number}"

"""From Hydra overrides to a checked `RunConfig`: with `overrides.py` the only user of Hydra and OmegaConf."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from skyrl_nat.config.overrides import parse_overrides, require_as_written
from skyrl_nat.config.run import RunConfig
from skyrl_nat.config.secrets import refuse_secrets
from skyrl_nat.errors import ConfigError

FREE_SECTIONS = ("environment.reward_weights.", "engine.extra.", "cluster.environment.")
"""Sections whose keys are the user's own."""
UNKNOWN_KEY = (r"Could not override '([^']+)'", r"Key '[^']+' not in.*?full_key: (\S+)")
REFUSALS = {
    r"'(\w+)' object has no attribute '(\w+)'": (
        "{1} must be a declared key of {0}, got an unknown one. See skyrl_nat/config/ for the names"
    ),
    r"Environment variable '([^']+)' not found.*?full_key: (\S+)": (
        "{1} must have a value, but reads the environment variable {0}, which is not set. Export it"
    ),
    r"missing mandatory value: \S+\s+full_key: (\S+)": "{0} must have a value, got ???. Give it one",
    r"field '\S+' is not Optional\s+full_key: (\S+)": "{0} must have a value, got null. Leave it out for its default",
    r"(Value|Invalid value|Cannot convert|Incompatible) ?(.*?)\s+full_key: (\S+)": (
        "{2} must have its declared type: {0} {1}. See skyrl_nat/config/ for the type"
    ),
}
"""What Hydra and OmegaConf say, and how the house says it."""


def config_dir() -> Path:
    """Return the folder of `train.yaml`: beside the package in a checkout, inside it when installed."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parent / "conf", package / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise ConfigError(f"conf/train.yaml must lie beside or in {package}, found neither. Install the package again")


def load_config(overrides: Sequence[str] = ()) -> RunConfig:
    """Compose `conf/train.yaml` with command-line overrides and check it.

    Args:
        overrides: As on the command line, for instance `["experiment=smoke_cpu", "trainer.steps=3"]`.

    Raises:
        ConfigError: With one sentence, for unknown keys, wrong types and impossible values.
    """
    parsed = parse_overrides(overrides)
    ConfigStore.instance().store(name="run_schema", node=RunConfig)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(config_dir()), version_base="1.3", job_name="train"):
            composed = compose(config_name="train", overrides=[_with_free_key(override) for override in overrides])
        config = cast("RunConfig", OmegaConf.to_object(composed))
    except ConfigError:
        raise
    except (HydraException, OmegaConfBaseException, AttributeError, ValueError) as error:
        raise ConfigError(_one_sentence(error)) from error
    require_as_written(parsed, config)
    refuse_secrets(config)
    return config


def config_from_file(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read the resolved config that a run saved, with overrides of single keys on top.

    Raises:
        ConfigError: If the file is missing or does not fit this version's schema.
    """
    parsed = parse_overrides(overrides)
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ConfigError(f"{path} must be a run's saved config.yaml, got something else. Restore the file")
        merged = OmegaConf.merge(OmegaConf.structured(RunConfig), OmegaConf.create(cast("Any", data)))
        for override in parsed:
            OmegaConf.update(merged, override.key_or_group, override.value())
        config = cast("RunConfig", OmegaConf.to_object(merged))
    except ConfigError:
        raise
    except (OSError, yaml.YAMLError, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(
            f"{path} must be a run's saved config.yaml, but: {_one_sentence(error)}. Restore it"
        ) from error
    require_as_written(parsed, config)
    refuse_secrets(config)
    return config


def save_config(config: RunConfig, path: Path) -> None:
    """Write the resolved config; it holds no secrets, since none is accepted."""
    path.write_text(OmegaConf.to_yaml(OmegaConf.structured(config)), encoding="utf-8")


def _with_free_key(override: str) -> str:
    """Let a key below one of `FREE_SECTIONS` be set like any other; Hydra wants `++` for names it has not seen."""
    return f"++{override}" if override.startswith(FREE_SECTIONS) else override


def _one_sentence(error: BaseException) -> str:
    """Say in the house's form what Hydra or OmegaConf refused."""
    chain: list[BaseException] = [error]
    # Under a debugger OmegaConf's errors may be their own cause.
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)
    for link in reversed(chain):
        if isinstance(link, ConfigError):
            return str(link)
    text = " ".join(line.strip() for link in chain for line in str(link).splitlines())
    for pattern in UNKNOWN_KEY:
        if found := re.search(pattern, text):
            return _unknown_key(found[1])
    if found := re.search(r"Could not find '([^/']+)/([^']*)'\s+Available options in '[^']*':(.*?)Config search", text):
        options = ", ".join(found[3].split())
        return f"{found[1]} must be one of {options}, got {found[2]!r}. Pick one, or add a file to conf/{found[1]}/"
    for pattern, sentence in REFUSALS.items():
        if found := re.search(pattern, text):
            return sentence.format(*found.groups())
    return text


def _unknown_key(key: str) -> str:
    known = _known_keys(OmegaConf.to_container(OmegaConf.structured(RunConfig)), "")
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"Did you mean {close[0]}?" if close else "See conf/train.yaml and skyrl_nat/config/ for the names"
    return f"{key} must be a declared key, got an unknown one. {hint}"


def _known_keys(node: Any, prefix: str) -> list[str]:
    if not isinstance(node, dict):
        return [prefix]
    items = cast("dict[str, Any]", node).items()
    return [key for name, value in items for key in _known_keys(value, f"{prefix}.{name}".lstrip("."))]

"""From Hydra overrides to a checked `RunConfig`: the only user of Hydra and OmegaConf."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from skyrl_nat.config.run import RunConfig
from skyrl_nat.errors import ConfigError

FREE_SECTIONS = ("environment.reward_weights.", "engine.extra.")
"""Sections whose keys are the user's own."""


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
    ConfigStore.instance().store(name="run_schema", node=RunConfig)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(config_dir()), version_base="1.3", job_name="train"):
            composed = compose(config_name="train", overrides=[_with_free_key(override) for override in overrides])
        return cast("RunConfig", OmegaConf.to_object(composed))
    except ConfigError:
        raise
    except (HydraException, OmegaConfBaseException, AttributeError, ValueError) as error:
        raise ConfigError(_one_sentence(error)) from error


def config_from_file(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read the resolved config that a run saved, with `key=value` overrides on top.

    Raises:
        ConfigError: If the file is missing or does not fit this version's schema.
    """
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ConfigError(f"{path} must be a run's saved config.yaml, got something else. Restore the file")
        merged = OmegaConf.merge(
            OmegaConf.structured(RunConfig),
            OmegaConf.create(cast("Any", data)),
            OmegaConf.from_dotlist(list(overrides)),
        )
        return cast("RunConfig", OmegaConf.to_object(merged))
    except ConfigError:
        raise
    except (OSError, yaml.YAMLError, OmegaConfBaseException, ValueError) as error:
        raise ConfigError(f"{path} must be a run's saved config.yaml, but: {_one_sentence(error)}") from error


def save_config(config: RunConfig, path: Path) -> None:
    """Write the resolved config; it holds no secrets, since none is ever part of a config."""
    path.write_text(OmegaConf.to_yaml(OmegaConf.structured(config)), encoding="utf-8")


def _with_free_key(override: str) -> str:
    """Let a key below one of `FREE_SECTIONS` be set like any other; Hydra wants `++` for names it has not seen."""
    return f"++{override}" if override.startswith(FREE_SECTIONS) else override


def _one_sentence(error: BaseException) -> str:
    """Say in the house's form what Hydra or OmegaConf refused."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    for link in reversed(chain):
        if isinstance(link, ConfigError):
            return str(link)
    text = " ".join(line.strip() for link in chain for line in str(link).splitlines())
    if found := re.search(r"Could not override '([^']+)'", text):
        return _unknown_key(found[1])
    if any(isinstance(link, OverrideParseException) for link in chain):
        return (
            f"an override must be KEY=VALUE, got {text.split(' See ')[0]!r}. Put a value with other than letters, "
            "digits and -_./:%+@ in double quotes within single ones: 'name=\"r\u00e9sum\u00e9\"'"
        )
    if found := re.search(r"'(\w+)' object has no attribute '(\w+)'", text):
        return (
            f"{found[2]} must be a declared key of {found[1]}, got an unknown one. See skyrl_nat/config/ for the names"
        )
    if found := re.search(r"Could not find '([^/']+)/([^']*)'\s+Available options in '[^']*':(.*?)Config search", text):
        options = ", ".join(found[3].split())
        return f"{found[1]} must be one of {options}, got {found[2]!r}. Pick one, or add a file to conf/{found[1]}/"
    if found := re.search(r"(Value|Invalid value|Cannot convert|Incompatible) ?(.*?)\s+full_key: (\S+)", text):
        return f"{found[3]} must have its declared type: {found[1]} {found[2]}. See skyrl_nat/config/ for the type"
    if found := re.search(r"Key '([^']+)' not in.*?full_key: (\S+)", text):
        return _unknown_key(found[2])
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

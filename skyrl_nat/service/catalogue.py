"""What can be trained: environments, with the algorithms and experiments that fit, read from the package itself."""

import ast
import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from skyrl_nat.config.load import config_dir
from skyrl_nat.environments.registry import FAMILIES, GYMNASIUM_PREFIX
from skyrl_nat.errors import ConfigError

OWN_NAMESPACE = "skyrl_nat/"
OWN_MODULE = "skyrl_nat.environments.jira.env"
DEFAULT_FAMILY = "nat_agent"
"""Of presets and experiments that name none, as in conf/train.yaml."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One entry."""

    name: str
    kind: Literal["family", "gymnasium"]
    description: str
    overrides: tuple[str, ...]
    """What makes a run one of this environment."""
    gymnasium_id: str = ""


@functools.cache
def environments() -> dict[str, Environment]:
    """Return all that are listed, by name."""
    found = [*_families(), *(_gymnasium(name) for name in _gymnasium_ids())]
    return {each.name: each for each in found}


def find_environment(name: str) -> Environment | None:
    """Return an environment by the name in the list; `gymnasium/<id>` and `<id>` mean the same."""
    listed = environments()
    plain = name.removeprefix(GYMNASIUM_PREFIX)
    for candidate in (name, GYMNASIUM_PREFIX + plain, GYMNASIUM_PREFIX + OWN_NAMESPACE + plain):
        if candidate in listed:
            return listed[candidate]
    return None


@functools.cache
def algorithms() -> tuple[str, ...]:
    """Return the names of all presets."""
    return _presets("algorithm")


@functools.cache
def experiments(environment: str) -> tuple[str, ...]:
    """Return the names of the experiments of an environment."""
    return tuple(name for name in _presets("experiment") if _environment_of(name) == environment)


def _presets(group: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (config_dir() / group).glob("*.yaml")))


def _environment_of(experiment: str) -> str:
    content: Any = yaml.safe_load((config_dir() / "experiment" / f"{experiment}.yaml").read_text(encoding="utf-8"))
    for entry in (content or {}).get("defaults", []):
        if isinstance(entry, dict) and "override /environment" in entry:
            return str(entry["override /environment"])
    return DEFAULT_FAMILY


def _families() -> list[Environment]:
    found: list[Environment] = []
    presets = {name: _family_of(name) for name in _presets("environment")}
    for name, family in sorted(presets.items()):
        if family in FAMILIES:
            overrides = (f"environment={name}",)
            found.append(
                Environment(name=name, kind="family", description=_description(FAMILIES[family]), overrides=overrides)
            )
    # A family without a preset takes the defaults.
    for family in sorted(set(FAMILIES) - set(presets.values())):
        overrides = (f"environment.family={family}",)
        found.append(
            Environment(name=family, kind="family", description=_description(FAMILIES[family]), overrides=overrides)
        )
    return found


def _family_of(preset: str) -> str:
    content: Any = yaml.safe_load((config_dir() / "environment" / f"{preset}.yaml").read_text(encoding="utf-8"))
    return str(content.get("environment", content).get("family", DEFAULT_FAMILY))


def _description(opener: str) -> str:
    """Return the first sentence of a family's package, without importing what that needs."""
    package = opener.partition(":")[0].rpartition(".")[0]
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return package
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or package
    return " ".join(text.split("\n\n")[0].split())


def _gymnasium_ids() -> list[str]:
    """Return the ids that can be played as text here, this package's own first; none without Gymnasium."""
    try:
        from skyrl_nat.environments.gymnasium_import import gymnasium
        from skyrl_nat.environments.gymnasium_text import make
    except ConfigError:
        return []
    importlib.import_module(OWN_MODULE)
    newest: dict[str, Any] = {}
    for spec in gymnasium.registry.values():
        known = newest.get(spec.name)
        if known is None or (spec.version or 0) > (known.version or 0):
            newest[spec.name] = spec
    found: list[str] = []
    for spec in newest.values():
        if not _is_shipped(spec.entry_point):
            continue
        try:
            make(spec.id, {}).close()
        except (ConfigError, OSError, RuntimeError):
            continue
        found.append(spec.id)
    return sorted(found, key=lambda name: (not name.startswith(OWN_NAMESPACE), name))


def _is_shipped(entry_point: Any) -> bool:
    """Leave out what another package would have to be installed for."""
    return isinstance(entry_point, str) and entry_point.startswith(
        ("skyrl_nat.", "gymnasium.envs.classic_control", "gymnasium.envs.toy_text")
    )


def _gymnasium(environment_id: str) -> Environment:
    own = environment_id.removeprefix(OWN_NAMESPACE)
    return Environment(
        name=GYMNASIUM_PREFIX + environment_id,
        kind="gymnasium",
        description=f"Gymnasium's {own} as a language task: what is seen as text, one action's name a turn.",
        overrides=(f"environment.family='{GYMNASIUM_PREFIX}{environment_id}'",),
        gymnasium_id=environment_id,
    )

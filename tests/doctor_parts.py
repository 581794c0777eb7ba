"""What tests of the doctor share: configs, fake packages, and rows by name."""

from collections.abc import Iterable

from skyrl_nat.config.load import load_config
from skyrl_nat.config.run import RunConfig
from skyrl_nat.doctor.check import Check
from skyrl_nat.doctor.versions import Find, Installed


def config(*overrides: str) -> RunConfig:
    return load_config(["experiment=smoke_cpu", *overrides])


def gpu_config(*overrides: str) -> RunConfig:
    return load_config(["experiment=agenthands_h100x8", *overrides])


def finder(**versions: str) -> Find:
    """Return who knows packages of these versions that require nothing; `_` stands for `-`."""
    packages = {
        name.replace("_", "-"): Installed(name=name.replace("_", "-"), version=version)
        for name, version in versions.items()
    }
    return packages.get


def verdicts(checks: Iterable[Check]) -> dict[str, str]:
    return {check.name: check.verdict for check in checks}


def wrong(checks: Iterable[Check]) -> list[str]:
    return [check.name for check in checks if check.verdict == "WRONG"]

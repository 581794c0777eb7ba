"""Whether NCCL can work: its library is there, and no environment variable is set that is known to hurt."""

import ctypes.util
import importlib.metadata
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from skyrl_nat.config.cluster import Device
from skyrl_nat.config.run import RunConfig
from skyrl_nat.doctor.check import Check, none_of, skipped

LIBRARY = "NCCL's library"
VARIABLES = "environment variables that hurt NCCL or CUDA"
HURTING: dict[str, tuple[Collection[str], str]] = {
    "NCCL_P2P_DISABLE": (("1",), "traffic between GPUs goes through the host"),
    "NCCL_SHM_DISABLE": (("1",), "processes of a node talk over sockets"),
    "NCCL_IB_DISABLE": (("1",), "nodes talk over TCP, not InfiniBand"),
    "NCCL_DEBUG": (("TRACE",), "every call is written down"),
    "NCCL_LAUNCH_MODE": (("GROUP",), "launches of several streams wait for each other"),
    "NCCL_NET_GDR_LEVEL": (("0", "LOC"), "network adapters do not read GPU memory"),
    "CUDA_LAUNCH_BLOCKING": (("1",), "every kernel is waited for"),
    "TORCH_NCCL_BLOCKING_WAIT": (("1",), "every collective call is waited for"),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": (("0",), "a rank that fails leaves the others hanging"),
    "CUDA_VISIBLE_DEVICES": (("", "-1", "NoDevFiles"), "no GPU is seen"),
}
"""Variable -> values that hurt, and what they do."""


def check_nccl(
    config: RunConfig, variables: Mapping[str, str], find_library: Callable[[], str] | None = None
) -> list[Check]:
    """Return the checks of NCCL, skipped where the config has no GPUs.

    Args:
        config: The run.
        variables: Environment of the workers.
        find_library: Returns where NCCL is, empty for nowhere; None looks.
    """
    if config.cluster.device is not Device.cuda:
        return [skipped(name, "cluster.device=cpu") for name in (LIBRARY, VARIABLES)]
    found = (find_library or find_nccl)()
    library = Check(
        name=LIBRARY,
        expected="installed",
        found=found or "none",
        is_ok=bool(found),
        advice="Install a CUDA build of torch with the packages that it requires",
        is_needed=True,
    )
    interfaces = os.listdir("/sys/class/net") if Path("/sys/class/net").is_dir() else []  # noqa: PTH208 - names alone
    faults = hurting(variables, interfaces)
    return [library, none_of("", VARIABLES, faults, advice="Unset them, here and in cluster.environment")]


def hurting(variables: Mapping[str, str], interfaces: Collection[str]) -> list[str]:
    """Return what is wrong with environment variables.

    Args:
        variables: Of the workers.
        interfaces: Names of this machine's network interfaces; empty where nobody knows.
    """
    found = [
        f"{name}={variables[name]!r}: {effect}"
        for name, (values, effect) in HURTING.items()
        if variables.get(name) in values
    ]
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        wanted = variables.get(name, "")
        if wanted and interfaces and not _fits_any(wanted, interfaces):
            found.append(f"{name}={wanted!r}: there is no such interface, only {', '.join(sorted(interfaces))}")
    return found


def find_nccl() -> str:
    """Return the package or file that brings NCCL, empty where none does."""
    for name in ("nvidia-nccl-cu13", "nvidia-nccl-cu12"):
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return ctypes.util.find_library("nccl") or ""


def _fits_any(wanted: str, interfaces: Collection[str]) -> bool:
    """Return whether NCCL's pattern names an interface: beginnings of names, `=` for whole names, `^` for others."""
    if wanted.startswith("^"):
        return True
    is_whole = wanted.startswith("=")
    names = wanted.removeprefix("=").split(",")
    return any(each == name if is_whole else each.startswith(name) for each in interfaces for name in names)

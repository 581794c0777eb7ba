"""Imports the module of a worker, without what would come along for nothing."""

import importlib
import sys
from types import ModuleType

UNUSED = ("sklearn", "scipy")
"""Transformers imports them where they are installed, for assisted decoding and losses of object detection: with pandas
and narwhals behind them a sixth of the processor time of a worker's start, and 140 of its 490 MB."""
OF_TRANSFORMERS = ("skyrl_nat.workers.", "skyrl_nat.engines.hf")


def import_worker(name: str) -> ModuleType:
    """Import a module; one of ours that trains or generates with transformers finds none of `UNUSED` meanwhile.

    Args:
        name: Its dotted name.
    """
    unused = [package for package in UNUSED if name.startswith(OF_TRANSFORMERS) and package not in sys.modules]
    # What `sys.modules` holds None for counts as not installed.
    sys.modules.update(dict.fromkeys(unused))  # pyright: ignore[reportCallIssue, reportArgumentType]
    try:
        return importlib.import_module(name)
    finally:
        for package in unused:
            del sys.modules[package]

"""Faults that a worker makes itself: armed by the controller for the next calls of a method, struck in the worker.

Both find each other in a folder that an environment variable names; every fault that struck leaves a line there.
"""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

FOLDER = "SKYRL_NAT_CHAOS"
"""Environment variable: folder of the run's faults. Also marks all processes of the run."""
EVENTS = "events.jsonl"
EXCEPTION = "exception"
HANGS = "hangs"


class BrokenError(RuntimeError):
    """An error of no type that the product knows."""


def folder() -> Path:
    """Return the folder of this run's faults."""
    return Path(os.environ[FOLDER])


def note(**event: Any) -> None:
    """Add an event; its time is that of a clock which all processes of the machine share and nobody sets."""
    line = json.dumps({"at": time.clock_gettime(time.CLOCK_MONOTONIC), **event}) + "\n"
    descriptor = os.open(folder() / EVENTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def arm(role: str, method: str, fault: str, times: int = 1) -> None:
    """Let the next calls of a method strike; returns when the worker would see it."""
    part = folder() / f"{role}.{method}.part"
    part.write_text(json.dumps({"fault": fault, "times": times}))
    part.replace(folder() / f"{role}.{method}")


def struck(role: str, method: str) -> str:
    """Return the fault that this call is to make, empty where there is none; one call takes it."""
    file = folder() / f"{role}.{method}"
    mine = file.with_suffix(f".{os.getpid()}")
    try:
        file.rename(mine)
    except FileNotFoundError:
        return ""
    order = json.loads(mine.read_text())
    mine.unlink()
    if order["times"] > 1:
        arm(role, method, order["fault"], order["times"] - 1)
    note(what="struck", fault=order["fault"], role=role, method=method, pid=os.getpid())
    return order["fault"]


def fail(fault: str) -> None:
    """Raise, or never return, where that is the fault."""
    if fault == EXCEPTION:
        raise BrokenError("broken on purpose")
    if fault == HANGS:
        stand_still()


def stand_still() -> None:
    """Block this thread for ever; the others of the process answer."""
    threading.Event().wait()

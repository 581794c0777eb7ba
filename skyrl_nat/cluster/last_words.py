"""What a dead worker leaves behind: the end of its log, and whether the node ran out of memory meanwhile."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

NUM_LINES = 3
LONGEST_LINE = 200
LOOK_S = 10.0
TRACES = ("Traceback", "Error", "Fatal Python", "Segmentation")
"""Words in a log that say why a process ended."""
OF_MEMORY = ("low on memory", "OutOfMemory", "memory pressure")
"""Words of Ray when it has ended a worker to save its node's memory."""
IN_CONSTRUCTOR = "error raised in its creation task"
"""Words of Ray when a worker could not be made; its text ends with the reason."""
MEMORY_HINT = "Give each worker more memory, or start fewer on a node (cluster.num_*, model.offload)"


def num_memory_kills() -> int:
    """Return how many processes the kernel has ended on this node for want of memory, 0 where it does not count."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def own_log() -> str:
    """Return the file that this process's errors go to."""
    return str(Path("/proc/self/fd/2").resolve())


async def last_words(error: RayError, identity: Mapping[str, Any]) -> str:
    """Return in one line what is known of a worker's death.

    Args:
        error: What a call to it met.
        identity: What it said of itself while it lived; empty if it never did.
    """
    text = str(error)
    if IN_CONSTRUCTOR in text:
        return f"it did not start: {_lines(text)[-1]}"
    if "log" not in identity or _is_of_memory(text):
        # Where memory is short, whoever looks would be the next to be ended.
        return with_hint(text, [], 0)
    strategy = NodeAffinitySchedulingStrategy(identity["node_id"], soft=False)
    try:
        ref = _look.options(scheduling_strategy=strategy).remote(identity["log"])
        lines, kills = await asyncio.wait_for(asyncio.wrap_future(ref.future()), LOOK_S)
    except Exception:  # noqa: BLE001  (whatever it is, the node does not tell)
        return f"{_first_line(text)}; its node does not answer"
    return with_hint(text, lines, kills - identity["memory_kills"])


def with_hint(text: str, lines: list[str], num_kills: int) -> str:
    """Return Ray's first line, the end of the log, and a word on memory where the death suggests one.

    Args:
        text: Of Ray.
        lines: End of the worker's log.
        num_kills: Processes that the kernel ended for want of memory while the worker lived.
    """
    found = _first_line(text)
    if lines:
        found += f"; its log ends with: {' / '.join(lines)}"
    if num_kills or _is_of_memory(text):
        return f"{found}; its node ran out of memory. {MEMORY_HINT}"
    if not any(word in line for word in TRACES for line in lines):
        found += (
            "; it left no traceback, as when the kernel ends a process for want of memory: see `dmesg` there. "
            f"If so: {MEMORY_HINT}"
        )
    return found


@ray.remote(num_cpus=0)
def _look(log: str) -> tuple[list[str], int]:
    return read_end(Path(log)), num_memory_kills()


def read_end(log: Path) -> list[str]:
    """Return the last lines of a log, without empty ones and without those that Ray itself writes."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return [f"(it cannot be read: {error})"]
    own = [line.strip()[:LONGEST_LINE] for line in lines if line.strip() and not line.startswith((":", "["))]
    return own[-NUM_LINES:]


def _is_of_memory(text: str) -> bool:
    return any(word in text for word in OF_MEMORY)


def _first_line(text: str) -> str:
    return (_lines(text) or ["it does not answer any more"])[0].rstrip(".")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]

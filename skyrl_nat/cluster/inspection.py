"""What the processes of a run are doing, asked from outside: a process that hangs cannot tell it itself."""

import asyncio
import contextlib
import faulthandler
import os
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from skyrl_nat.cluster.group import ActorGroup

DUMP_SIGNAL = signal.SIGUSR2
DUMP_S = 1.0
"""Time in which a process writes its stacks."""


def watch_for_stack_dumps() -> int:
    """Let this process write the stacks of all its threads when `DUMP_SIGNAL` comes, whatever it is doing.

    Returns:
        The file descriptor of a nameless file in memory, to be read through /proc; -1 where there is none.
    """
    if not hasattr(os, "memfd_create"):
        return -1
    descriptor = os.memfd_create("stacks")
    faulthandler.register(DUMP_SIGNAL, file=descriptor, all_threads=True, chain=False)
    return descriptor


async def stacks_of(groups: Sequence[ActorGroup], timeout_s: float = 20.0) -> dict[str, str]:
    """Return state and stacks of every actor, by role and rank.

    Args:
        groups: Whose.
        timeout_s: Of each node; of one that does not answer that is said in the place of stacks.
    """
    names: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for group in groups:
        for rank, identity in group.identities.items():
            names[identity["node_id"]].append((f"{group.role} {rank}", identity))
    found = await asyncio.gather(*(_ask(node, members, timeout_s) for node, members in names.items()))
    return {name: text for part in found for name, text in part.items()}


async def _ask(node_id: str, members: Sequence[tuple[str, dict[str, Any]]], timeout_s: float) -> dict[str, str]:
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    places = [(int(identity["pid"]), int(identity["stacks"])) for _, identity in members]
    try:
        ref = _look.options(scheduling_strategy=strategy).remote(places)
        texts = await asyncio.wait_for(asyncio.wrap_future(ref.future()), timeout_s)
    except Exception as error:  # noqa: BLE001  (a node that is gone is what is being looked for)
        texts = [f"node {node_id} does not answer: {type(error).__name__}"] * len(members)
    return {name: text for (name, _), text in zip(members, texts, strict=True)}


@ray.remote(num_cpus=0)
def _look(places: Sequence[tuple[int, int]]) -> list[str]:
    return look(places)


def look(places: Sequence[tuple[int, int]]) -> list[str]:
    """Return what processes of this machine are doing: state, stacks of the threads, children.

    Args:
        places: Process id, and the descriptor that `watch_for_stack_dumps` returned there.
    """
    states = [_state(pid) for pid, _ in places]
    asked = [pid for (pid, stacks), state in zip(places, states, strict=True) if stacks >= 0 and _can_run(state)]
    for pid in asked:
        # It may have ended since.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, DUMP_SIGNAL)
    time.sleep(DUMP_S if asked else 0)
    return [
        f"process {pid} is {state}\n{_read(pid, stacks) if pid in asked else ''}"
        for (pid, stacks), state in zip(places, states, strict=True)
    ]


def _can_run(state: str) -> bool:
    return not state.startswith(("gone", "zombie", "stopped"))


def _state(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        children = [f"{child.pid} {child.name()} {child.status()}" for child in process.children(recursive=True)]
        return f"{process.status()}; children: {', '.join(children) or 'none'}"
    except psutil.NoSuchProcess:
        return "gone"


def _read(pid: int, stacks: int) -> str:
    """Return the newest dump: earlier ones lie before it in the file."""
    try:
        file = Path(f"/proc/{pid}/fd/{stacks}")
        text = file.read_text(encoding="utf-8", errors="replace")
        file.write_text("")
    except OSError as error:
        return f"its stacks cannot be read: {error}"
    return text.lstrip("\0")

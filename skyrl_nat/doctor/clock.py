"""Whether the clock can be trusted: it runs evenly, is not before the newest file, and agrees with other nodes'."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from skyrl_nat.doctor.check import Check, skipped

LOOK_S = 0.2
MAX_DRIFT_S = 0.05
"""Between wall clock and monotonic clock over `LOOK_S`: more is a clock that is being set."""
MAX_AHEAD_S = 60.0
"""How much newer than now a file may be, for disks of other machines."""
MAX_APART_S = 2.0
"""Between two nodes: logs, spans and leases are compared by wall clock."""
NODES = "clocks of the nodes"


def check_even(
    wall: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Check:
    """Return whether the wall clock runs as fast as the monotonic one.

    Args:
        wall: Seconds since 1970.
        monotonic: Seconds since any moment.
        sleep: Waits so many seconds.
    """
    first = wall() - monotonic()
    sleep(LOOK_S)
    drift = abs(wall() - monotonic() - first)
    return Check(
        name=f"wall clock against monotonic clock, over {LOOK_S:g} s",
        expected=f"<= {MAX_DRIFT_S:g} s apart",
        found=f"{drift:.4f} s",
        is_ok=drift <= MAX_DRIFT_S,
        advice="Let NTP slew the clock in place of setting it",
    )


def check_not_behind(files: Iterable[Path], now: float) -> Check:
    """Return whether the wall clock is not before the newest of some files.

    Args:
        files: Data and checkpoints; those that are not there do not count.
        now: Seconds since 1970.
    """
    times = {path: path.stat().st_mtime for path in files if path.exists()}
    name = "wall clock against the newest file of data and checkpoints"
    if not times:
        return skipped(name, "there is no file yet")
    newest = max(times, key=lambda path: times[path])
    behind = times[newest] - now
    return Check(
        name=name,
        expected=f"at most {MAX_AHEAD_S:g} s before it",
        found=f"{behind:.0f} s before {newest}" if behind > 0 else f"{-behind:,.0f} s after {newest.name}",
        is_ok=behind <= MAX_AHEAD_S,
        advice="Set the clock (NTP): resume=latest goes by the times of files",
    )


def check_nodes(address: str | None, offsets: Callable[[], Mapping[str, tuple[float, float]]]) -> Check:
    """Return whether the clocks of a Ray cluster's nodes agree with this one.

    Args:
        address: `cluster.ray_address`.
        offsets: Asks the nodes: node -> seconds that its clock is ahead, and how uncertain that is.
    """
    if not address:
        return skipped(NODES, "cluster.ray_address is not set: there is one machine")
    found = offsets()
    wrong = {name for name, (ahead, uncertain) in found.items() if abs(ahead) - uncertain > MAX_APART_S}
    said = [f"{name} {ahead:+.3f} s" for name, (ahead, _) in found.items() if name in wrong or not wrong]
    return Check(
        name=NODES,
        expected=f"<= {MAX_APART_S:g} s apart",
        found=", ".join(said[:4]) + (f" and {len(said) - 4} more" if len(said) > 4 else "") or "no node answered",
        is_ok=bool(found) and not wrong,
        advice="Let NTP run on every node",
    )

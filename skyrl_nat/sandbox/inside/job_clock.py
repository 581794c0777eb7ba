"""By how much a job's deadline moves because its machine, not its code, was slow. Stdlib only.

The server measures; the job's first process reads it in a page that both share and that no worker inherits.
"""

import mmap
import struct
import time

MAX_FACTOR = 3.0
"""A deadline moves to at most this many times the job's limit."""
LOOK_S = 0.5
"""How long past a deadline the first process waits for the server's last word."""

_page: mmap.mmap | None = None


def make_page() -> None:
    """Make the page; in the server, before the first job."""
    global _page
    _page = mmap.mmap(-1, mmap.PAGESIZE)


def hide_from_workers() -> None:
    """Keep the page out of all forks of this process."""
    if _page is not None:
        _page.madvise(mmap.MADV_DONTFORK)


def allow(seconds: float) -> None:
    """Let the running job's deadline be this much later; in the server."""
    if _page is not None:
        _page[:16] = struct.pack("dd", seconds, time.monotonic())


def has_passed(deadline: float) -> bool:
    """Return whether a deadline is over, all that was allowed on top included."""
    now = time.monotonic()
    if _page is None or now <= deadline:
        return now > deadline
    seconds, looked_at = struct.unpack("dd", _page[:16])
    limit = deadline + seconds
    return now > limit and (looked_at > limit or now > limit + LOOK_S)

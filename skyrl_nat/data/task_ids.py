"""Whether ids are unique, without holding them: 64-bit hashes are sorted, and equal ones looked at again."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from skyrl_nat.errors import DataError

SUSPECTS_AT_ONCE = 1000


def hashes_of(ids: Iterable[str], count: int, hash_of: Callable[[str], int] = hash) -> np.ndarray:
    """Return the hash of every id; they are comparable within this process only."""
    return np.fromiter((hash_of(name) for name in ids), dtype=np.int64, count=count)


def check_unique(hashes: np.ndarray, ids: Callable[[], Iterator[str]], hash_of: Callable[[str], int] = hash) -> None:
    """Pass where no id comes twice.

    Args:
        hashes: One per id; sorted in place.
        ids: Goes through all of them again; only called where two hashes are equal.
        hash_of: What the hashes were made with.

    Raises:
        DataError: With the first few that do.
    """
    hashes.sort()
    suspects = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    for first in range(0, len(suspects), SUSPECTS_AT_ONCE):
        part = set(suspects[first : first + SUSPECTS_AT_ONCE].tolist())
        counts = Counter(name for name in ids() if hash_of(name) in part)
        twice = sorted(name for name, count in counts.items() if count > 1)
        if twice:
            number = f"at least {len(twice)}" if len(suspects) > SUSPECTS_AT_ONCE else str(len(twice))
            raise DataError(
                f"task ids must be unique over all files, got {number} of them twice: {', '.join(twice[:5])}. "
                "Rename them, or name each file once"
            )

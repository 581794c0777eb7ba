"""Clock offsets, from what a node says and how long the way was."""

import itertools
from types import SimpleNamespace

from skyrl_nat.cluster import clocks


def test_the_look_with_the_shortest_way_counts(monkeypatch) -> None:
    """Three looks of 2, 0.2 and 1 s at a node whose clock is 5 s ahead; half the way there is what is not known."""
    ways = itertools.chain([2.0, 0.2, 1.0])
    now = [0.0]

    def get(_: object, timeout: float) -> float:
        way_s = next(ways)
        now[0] += way_s
        return 1000.0 + now[0] - way_s / 2 + 5.0

    remote = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda: None))
    monkeypatch.setattr(clocks.ray, "remote", lambda **_: lambda function: remote)
    monkeypatch.setattr(clocks.ray, "get", get)
    monkeypatch.setattr(
        clocks, "time", SimpleNamespace(time=lambda: 1000.0 + now[0], monotonic=lambda: now[0], sleep=None)
    )
    ahead, uncertain = clocks._offset("ab" * 28, timeout_s=1.0)
    assert abs(ahead - 5.0) < 1e-9
    assert abs(uncertain - 0.1) < 1e-9

"""Parsing in many threads at once, which Python 3.11 alone does not stand."""

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from skyrl_nat.environments.nat_agent.patterns import parse_python


@pytest.fixture
def _interrupted_often() -> Iterator[None]:
    """Let other threads run whenever garbage is collected, as finalizers do, and collect it all the time."""
    thresholds = gc.get_threshold()

    def give_way(phase: str, info: dict[str, int]) -> None:
        del phase, info
        time.sleep(0)

    gc.callbacks.append(give_way)
    gc.set_threshold(20, 1000, 1000)
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks.remove(give_way)


@pytest.mark.usefixtures("_interrupted_often")
def test_threads_that_parse_at_once_do_not_disturb_each_other() -> None:
    source = "def f(a):\n    return [a, (a, {a: [a, a]})]\n" * 60
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(parse_python, [source] * 40))
    assert [len(tree.body) for tree in trees] == [60] * 40

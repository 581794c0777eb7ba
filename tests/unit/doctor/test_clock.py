"""Clocks that jump, that are behind, and that are apart."""

import os

from skyrl_nat.doctor.clock import check_even, check_nodes, check_not_behind


def test_a_clock_that_is_set_while_one_looks_is_wrong() -> None:
    wall, monotonic = iter([1000.0, 1003.0]), iter([5.0, 5.2])
    check = check_even(lambda: next(wall), lambda: next(monotonic), lambda _: None)
    assert check.verdict == "WRONG"
    assert check_even().verdict == "ok"


def test_a_clock_before_the_newest_file_is_wrong(tmp_path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for path, when in ((old, 1000.0), (new, 5000.0)):
        path.touch()
        os.utime(path, (when, when))
    check = check_not_behind([old, new, tmp_path / "none"], now=2000.0)
    assert (check.verdict, check.found) == ("WRONG", f"3000 s before {new}")
    assert check_not_behind([old, new], now=6000.0).verdict == "ok"
    assert check_not_behind([tmp_path / "none"], now=0.0).verdict == "skipped"


def test_nodes_whose_clocks_are_apart_are_named() -> None:
    check = check_nodes("10.0.0.1:6379", lambda: {"a": (0.01, 0.02), "b": (-31.5, 0.1)})
    assert (check.verdict, check.found) == ("WRONG", "b -31.500 s")
    assert check_nodes("10.0.0.1:6379", lambda: {"a": (0.01, 0.02), "b": (3.0, 1.5)}).verdict == "ok"
    assert check_nodes("10.0.0.1:6379", dict).verdict == "WRONG"
    assert check_nodes(None, dict).verdict == "skipped"

"""Ids are compared by hash; equal hashes are looked at again."""

import pytest

from skyrl_nat.data.task_ids import SUSPECTS_AT_ONCE, check_unique, hashes_of
from skyrl_nat.errors import DataError


def check(ids: list[str], hash_of=hash) -> None:
    check_unique(hashes_of(ids, len(ids), hash_of), lambda: iter(ids), hash_of)


def test_equal_hashes_of_different_ids_are_no_duplicates():
    check(["a", "b", "cc", "dd"], hash_of=len)


def test_duplicate_among_equal_hashes_is_found():
    with pytest.raises(DataError, match=r"got 1 of them twice: dd\. Rename"):
        check(["a", "b", "cc", "dd", "dd"], hash_of=len)


def test_duplicate_behind_more_suspects_than_are_looked_at_at_once_is_found():
    ids = [f"{i:0{i + 1}}" for i in range(SUSPECTS_AT_ONCE + 5)]
    other = [f"x{'x' * i}" for i in range(SUSPECTS_AT_ONCE + 5)]
    check(ids + other, hash_of=len)
    with pytest.raises(DataError, match="got at least 1 of them twice"):
        check([*ids, *other, ids[-1]], hash_of=len)


def test_many_duplicates_are_counted_and_the_first_five_shown():
    ids = [f"t{i}" for i in range(20)]
    with pytest.raises(DataError, match=r"got 20 of them twice: t0, t1, t10, t11, t12\. Rename"):
        check(ids + ids)


@pytest.mark.parametrize("ids", [[], ["a"], ["a", "b"]])
def test_unique_ids_pass_without_a_second_look(ids: list[str]):
    def never():
        raise AssertionError("the ids were gone through again")

    check_unique(hashes_of(ids, len(ids)), never)

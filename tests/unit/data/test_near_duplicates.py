"""Tasks that say nearly the same are found, and others are not."""

import copy
import dataclasses

import pytest
from nat_tasks import make_task

from skyrl_nat.data.near_duplicates import (
    NEAR,
    fingerprint,
    near_duplicates,
    same_code,
    same_names,
    shingles,
    similarity,
)
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.types import Task


def changed(task: Task, **payload: object) -> Task:
    return dataclasses.replace(task, task_id=f"{task.task_id}/other", payload=copy.deepcopy(task.payload) | payload)


def test_similarity_is_the_share_of_common_triples() -> None:
    first, second = frozenset([("a", "b", "c"), ("b", "c", "d")]), frozenset([("b", "c", "d"), ("c", "d", "e")])
    assert similarity(first, second) == pytest.approx(1 / 3)
    assert similarity(first, first) == 1.0


def test_words_count_and_case_signs_and_the_form_do_not() -> None:
    task = make_task()
    other = changed(task)
    for tool in other.payload["tools"]:
        tool["description"] = tool["description"].upper().replace(" ", "  ") + "!"
        tool["config"] = []
    assert shingles(task) == shingles(other)


def test_near_duplicate_is_found_with_its_share() -> None:
    task = make_task()
    other = changed(task)
    other.payload["tools"][0]["behaviour"] = ["Yes."]
    [(found, known, share)] = near_duplicates([other], [task])
    assert (found, known) == (other.task_id, task.task_id)
    assert NEAR <= share < 1.0
    assert share == similarity(shingles(task), shingles(other))


def test_shipped_splits_have_no_near_duplicates() -> None:
    train, validation = (load_tasks([f"builtin:nat_agent/{split}"]) for split in ("train", "validation"))
    assert near_duplicates(validation, train) == []
    assert len(near_duplicates(train, train)) >= len(train)


def test_fingerprint_ignores_the_name_alone() -> None:
    task = make_task()
    assert fingerprint(task) == fingerprint(changed(task, name="other"))
    assert fingerprint(task) != fingerprint(changed(task, description="other"))


def test_function_of_the_same_name_is_found_wherever_it_stands() -> None:
    task = make_task()
    name = task.payload["tools"][0]["name"]
    other = changed(task, tools=[], workflow={"type": "custom", "function": {"name": name}})
    assert same_names([other], [task]) == [(other.task_id, task.task_id)]
    assert same_names([changed(task, tools=[], workflow={})], [task]) == []


def with_code(task: Task, source: str) -> Task:
    return (
        changed(task)
        if not source
        else dataclasses.replace(changed(task), hidden={"reference": {"other": {"source": source, "config": {}}}})
    )


def test_same_code_under_other_names_is_found() -> None:
    first = with_code(make_task(), "async def run(x):\n    y = x * 3\n    raise ValueError('a')\n")
    same = with_code(make_task(), "async def run(count):\n    total = count * 3\n    raise ValueError('other words')\n")
    other = with_code(make_task(), "async def run(x):\n    y = x * 4\n    raise ValueError('a')\n")
    assert same_code([same], [first]) == [(same.task_id, first.task_id)]
    assert same_code([other], [first]) == []


def test_functions_that_only_call_tools_have_no_code_of_their_own() -> None:
    calls = with_code(make_task(), "async def run(x):\n    return await tool.ainvoke(x)\n")
    assert same_code([calls], [calls]) == []

"""The shipped sample of the library: enough of everything, and nothing of one split in the other."""

from collections import Counter

from skyrl_nat.data.report import SPLITS, leaks
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.payload import parse_hidden, parse_spec


def test_sample_has_every_level_and_leaks_nothing_across_its_split() -> None:
    tasks = {split: load_tasks([f"builtin:nat_agent/library_{split}"], family="nat_agent") for split in SPLITS}
    assert {split: len(found) for split, found in tasks.items()} == {"train": 144, "validation": 16}
    assert all(set(Counter(task.difficulty for task in found)) == {1, 2, 3, 4, 5} for found in tasks.values())
    found = leaks(tasks)
    assert not any(found.values()), found


def test_every_task_of_the_sample_is_whole() -> None:
    for split in SPLITS:
        for task in load_tasks([f"builtin:nat_agent/library_{split}"]):
            spec, hidden = parse_spec(task.payload), parse_hidden(task.hidden)
            functions = {tool.name for tool in spec.functions}
            assert set(hidden.reference) == functions == {mutant.tool for mutant in hidden.mutants}, task.task_id
            assert {vector.tool for vector in hidden.vectors} == functions, task.task_id
            assert hidden.solution, task.task_id
            assert task.visible().hidden == {}

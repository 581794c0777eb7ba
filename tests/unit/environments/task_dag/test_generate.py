import dataclasses
from collections import Counter

import pytest

from skyrl_nat.data.specs import load_tasks, resolve_file
from skyrl_nat.environments.task_dag.coverage import requirement_of
from skyrl_nat.environments.task_dag.domains import DOMAINS, GOALS, HELD_OUT
from skyrl_nat.environments.task_dag.generate import (
    NEAR,
    SIZES,
    generate,
    is_near,
    needs_of,
    shingles,
    similarity,
)
from skyrl_nat.environments.task_dag.payload import parse_hidden, parse_request
from skyrl_nat.environments.task_dag.task_types import GROUP, TYPES

SPLITS = {split: load_tasks([f"builtin:task_dag/{split}"], family="task_dag") for split in SIZES}
ALL = [task for tasks in SPLITS.values() for task in tasks]


def test_shipped_files_hold_what_the_generator_makes() -> None:
    assert generate(0) == SPLITS
    assert {split: len(tasks) for split, tasks in SPLITS.items()} == {"train": 480, "validation": 120}
    assert sum(resolve_file(f"builtin:task_dag/{split}").stat().st_size for split in SPLITS) < 150_000


def test_another_seed_gives_other_tasks() -> None:
    sizes = {"train": 10}
    assert generate(1, sizes) == generate(1, sizes)
    assert generate(1, sizes) != generate(2, sizes)


def test_no_two_requests_are_near_each_other_within_or_across_splits() -> None:
    """Whatever the generator looks at: by words, and by what is needed."""
    requests = [parse_request(task.payload) for task in ALL]
    words = [shingles(request) for request in requests]
    needs = [frozenset(request.needs) for request in requests]
    for place in range(len(requests)):
        assert all(similarity(words[place], other) < NEAR for other in words[:place])
        assert all(similarity(needs[place], other) < NEAR for other in needs[:place])
    assert len({request.title for request in requests}) < len(requests)  # a title alone is no difference


def test_needs_in_another_order_and_titles_make_no_new_request() -> None:
    first, other = (parse_request(task.payload) for task in SPLITS["train"][3:5])
    swapped = dataclasses.replace(first, needs=first.needs[::-1])
    assert similarity(shingles(first), shingles(swapped)) == 1.0
    assert is_near(first, swapped)
    renamed = dataclasses.replace(first, title="Something else altogether, for once", rules=other.rules)
    assert similarity(shingles(first), shingles(renamed)) < NEAR
    assert is_near(first, renamed)
    assert not is_near(first, other)


def test_levels_domains_and_the_held_out_half() -> None:
    domains = {split: Counter(task.task_id.split("/")[2][:-5] for task in tasks) for split, tasks in SPLITS.items()}
    assert set(domains["train"]) == set(DOMAINS) - set(HELD_OUT)
    assert set(domains["validation"]) == set(DOMAINS)
    assert sum(domains["validation"][name] for name in HELD_OUT) == 60
    for tasks in SPLITS.values():
        assert set(Counter(task.difficulty for task in tasks).values()) == {len(tasks) // 5}


def test_every_request_fits_its_hidden_half() -> None:
    for task in ALL:
        request, hidden = parse_request(task.payload), parse_hidden(task.hidden)
        assert 3 <= len(request.needs) == len(hidden.requirements) <= 8
        assert len(request.rules) == len(hidden.order) >= 1
        for place, need in enumerate(request.needs):
            assert requirement_of(need, hidden.requirements) == place, task.task_id
        leaves = [node for node in hidden.reference_nodes if node.type != GROUP]
        assert request.min_tasks <= len(leaves) <= request.max_tasks


@pytest.mark.parametrize("domain", DOMAINS)
def test_work_of_a_domain_is_told_apart(domain: str) -> None:
    needs = needs_of(domain)
    requirements = [need.requirement for need in needs]
    assert [requirement_of(need.text, requirements) for need in needs] == list(range(18))
    assert {need.type for need in needs} == set(TYPES) - {GROUP}
    assert GOALS[domain]


def test_plurals_and_singulars_are_one_word() -> None:
    needs = {need.object: need.requirement.keywords for need in needs_of("software_release")}
    assert needs["login crashes"] == ("login", "crash")
    assert needs["changelog entries"] == ("changelog", "entr")
    assert needs["pilot customers"] == ("pilot", "customer")
    assert needs["help texts"] == ("help", "text")


def test_so_many_different_requests_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyrl_nat.environments.task_dag.generate.MAX_TRIES", 1)
    with pytest.raises(ValueError, match=r"requests must differ, 1 draws were all near others\. Ask for fewer tasks"):
        generate(0, {"train": 480})

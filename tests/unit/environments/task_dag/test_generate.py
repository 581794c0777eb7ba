from collections import Counter

import pytest

from skyrl_nat.data.specs import load_tasks, resolve_file
from skyrl_nat.environments.task_dag.coverage import requirement_of
from skyrl_nat.environments.task_dag.domains import DOMAINS, GOALS, HELD_OUT
from skyrl_nat.environments.task_dag.generate import (
    NEAR,
    SIZES,
    all_tasks,
    generate,
    needs_of,
    shingles,
    similarity,
)
from skyrl_nat.environments.task_dag.payload import Request, parse_hidden, parse_request
from skyrl_nat.environments.task_dag.task_types import GROUP, TYPES

SPLITS = {split: load_tasks([f"builtin:task_dag/{split}"], family="task_dag") for split in SIZES}


def test_shipped_files_hold_what_the_generator_makes() -> None:
    assert generate(0) == SPLITS
    assert {split: len(tasks) for split, tasks in SPLITS.items()} == {"train": 480, "validation": 120}
    assert sum(resolve_file(f"builtin:task_dag/{split}").stat().st_size for split in SPLITS) < 150_000


def test_another_seed_gives_other_tasks() -> None:
    sizes = {"train": 10}
    assert generate(1, sizes) == generate(1, sizes)
    assert generate(1, sizes) != generate(2, sizes)


def test_no_two_requests_are_near_each_other_within_or_across_splits() -> None:
    known = [shingles(parse_request(task.payload)) for task in all_tasks(SPLITS)]
    for place, found in enumerate(known):
        assert all(similarity(found, other) < NEAR for other in known[:place])


def test_needs_in_another_order_are_the_same_request() -> None:
    payload = SPLITS["train"][4].payload
    swapped = payload | {"needs": payload["needs"][::-1]}
    assert similarity(shingles(Request(**payload)), shingles(Request(**swapped))) == 1.0


def test_levels_domains_and_the_held_out_half() -> None:
    domains = {split: Counter(task.task_id.split("/")[2][:-5] for task in tasks) for split, tasks in SPLITS.items()}
    assert set(domains["train"]) == set(DOMAINS) - set(HELD_OUT)
    assert set(domains["validation"]) == set(DOMAINS)
    assert sum(domains["validation"][name] for name in HELD_OUT) == 60
    for tasks in SPLITS.values():
        assert set(Counter(task.difficulty for task in tasks).values()) == {len(tasks) // 5}


def test_every_request_fits_its_hidden_half() -> None:
    for task in all_tasks(SPLITS):
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


def test_so_many_different_requests_must_be_there() -> None:
    with pytest.raises(ValueError, match="requests must differ"):
        import skyrl_nat.environments.task_dag.generate as module

        old, module.MAX_TRIES = module.MAX_TRIES, 1
        try:
            generate(0, {"train": 480})
        finally:
            module.MAX_TRIES = old

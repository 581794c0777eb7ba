"""From families to tasks: exact numbers, repeatable, resumable, and what cannot be made is replaced or refused."""

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mini_nat import MiniNat, OracleSandbox, open_oracle

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.making.inputs import NUM_EXAMPLES, NUM_INPUTS
from skyrl_nat.data.making.maker import Made, MadeStore, Maker
from skyrl_nat.data.near_duplicates import fingerprint
from skyrl_nat.data.synthesis.complete import complete
from skyrl_nat.data.synthesis.compose import draw_recipe
from skyrl_nat.data.synthesis.family import Family, ToolTemplate, ToolVariant
from skyrl_nat.data.synthesis.synthesize import synthesize
from skyrl_nat.environments.nat_agent.payload import WorkflowType, parse_hidden, parse_spec
from skyrl_nat.errors import DataError

MIX = {1: 1.0, 2: 1.0, 3: 2.0}
TEXT = {"kind": "text", "alphabet": "abcXYZ 19", "min": 1, "max": 12}


def join_template(word: str, level: int) -> ToolTemplate:
    def make(rng: random.Random) -> ToolVariant:
        end = "".join(rng.choices("mnopqr", k=3))
        return ToolVariant(
            name=f"{word}_{end}",
            args={"text": "str"},
            returns="str",
            does=(
                f"Return {word} and the text and {end}.",
                f"Put {word} before, {end} after.",
                f"{word}, text, {end}.",
            ),
            body=f"return '{word}' + text + '{end}'",
            draw={"text": TEXT},
        )

    return ToolTemplate(level=level, make=make)


def count_template(letter: str) -> ToolTemplate:
    def make(rng: random.Random) -> ToolVariant:
        factor = rng.randint(2, 99)
        return ToolVariant(
            name=f"count_{letter}_times_{factor}",
            args={"text": "str"},
            returns="int",
            does=(f"Count {letter}, times {factor}.", f"{factor} for every {letter}.", f"{letter} by {factor}."),
            body=f"return (len(text) + text.count('{letter}')) * {factor}",
            draw={"text": TEXT},
        )

    return ToolTemplate(level=1, make=make)


def family(name: str, *words: str) -> Family:
    templates = [join_template(word, level) for word, level in zip(words, (1, 2, 3), strict=True)]
    return Family(name=name, subject=f"joining {name}", tools=(*templates, count_template(name[0])))


FAMILIES = {
    "train": [family("a", "apple", "acorn", "amber"), family("X", "xylem", "xenon", "xerox")],
    "validation": [family("b", "bread", "birch", "brass"), family("c", "cedar", "coral", "clover")],
}


def make_maker(folder: Path) -> Maker:
    store = MadeStore(folder / "made.jsonl")
    return Maker(EnvironmentConfig(), store, num_workers=1, sandbox=MiniNat(), oracle=open_oracle())


def make(folder: Path, count: int = 12, **changes: Any) -> Any:
    maker = make_maker(folder)
    options = {"families": FAMILIES, "counts": {"train": count, "validation": 4}, "seed": 3, "mix": MIX} | changes
    try:
        return synthesize(maker, options.pop("families"), options.pop("counts"), **options)
    finally:
        maker.close()


def test_exactly_as_many_tasks_as_asked_for_in_the_asked_for_mix(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert {split: len(tasks) for split, tasks in made.tasks.items()} == {"train": 12, "validation": 4}
    assert Counter(task.difficulty for task in made.tasks["train"]) == {1: 3, 2: 3, 3: 6}
    assert Counter(task.difficulty for task in made.tasks["validation"]) == {1: 1, 2: 1, 3: 2}
    for split, letters in (("train", "aX"), ("validation", "bc")):
        for task in made.tasks[split]:
            spec, hidden = parse_spec(task.payload), parse_hidden(task.hidden)
            words = {tool.name.partition("_")[0][0] for tool in spec.tools}
            assert words <= {*letters.lower(), "c"}  # count_a, count_b
            assert {mutant.tool for mutant in hidden.mutants} <= {tool.name for tool in spec.functions}
            assert task.task_id.startswith(f"nat_agent/{split}/")
    names = [task.task_id for tasks in made.tasks.values() for task in tasks]
    assert len(set(names)) == 16


def test_same_seed_gives_the_same_tasks_and_another_one_others(tmp_path: Path) -> None:
    first, again, other = make(tmp_path / "1"), make(tmp_path / "2"), make(tmp_path / "3", seed=4)
    assert first.tasks == again.tasks
    assert first.tasks != other.tasks


def test_run_that_was_stopped_goes_on_without_making_anything_twice(tmp_path: Path) -> None:
    whole = make(tmp_path / "whole")
    path = tmp_path / "whole" / "made.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    (tmp_path / "cut").mkdir()
    cut = tmp_path / "cut" / "made.jsonl"
    cut.write_text("".join(lines[:7]) + lines[7][:20])
    assert make(tmp_path / "cut").tasks == whole.tasks
    assert len(cut.read_text().splitlines()) == len(lines)


def test_library_that_is_too_small_is_refused_with_what_to_do(tmp_path: Path) -> None:
    one = {"train": [Family(name="a", subject="one tool", tools=(join_template("only", 1),))]}
    with pytest.raises(DataError, match=r"families of train must give another task of difficulty 2.*Ask for fewer"):
        make(tmp_path, families=one, counts={"train": 3}, mix={2: 1.0})


def twin(letter: str, numbers: range) -> Family:
    """Tools of other names whose code is the same for the same number."""

    def make(rng: random.Random) -> ToolVariant:
        number = rng.choice(numbers)
        return ToolVariant(
            name=f"{letter}_of_{number}", args={letter: "str"}, returns="str",
            does=(f"Say {letter} {number} times.", "b.", "c."), body=f"return {letter} * {number}", draw={letter: TEXT},
        )  # fmt: skip

    return Family(name=letter, subject="saying it again", tools=(ToolTemplate(level=1, make=make),))


def test_tasks_of_the_same_code_do_not_stay_on_both_sides_of_the_split(tmp_path: Path) -> None:
    families = {"train": [twin("a", range(2, 5))], "validation": [twin("b", range(2, 7))]}
    made = make(tmp_path, families=families, counts={"train": 3, "validation": 2}, mix={1: 1.0})
    numbers = {split: {task.payload["name"][-1] for task in tasks} for split, tasks in made.tasks.items()}
    assert numbers == {"train": {"2", "3", "4"}, "validation": {"5", "6"}}


def test_functions_come_again_in_training_alone_and_not_in_the_same_words(tmp_path: Path) -> None:
    families = {"train": [twin("a", range(2, 5))], "validation": [twin("b", range(5, 8))]}
    options = {"families": families, "counts": {"train": 6, "validation": 3}, "mix": {1: 1.0}}
    made = make(tmp_path / "1", **options, repeats={"train": 2})
    numbers = {split: sorted(task.payload["name"][-1] for task in tasks) for split, tasks in made.tasks.items()}
    assert numbers == {"train": ["2", "2", "3", "3", "4", "4"], "validation": ["5", "6", "7"]}
    assert len({fingerprint(task) for task in made.tasks["train"]}) == 6
    with pytest.raises(DataError, match="families of train must give another task"):
        make(tmp_path / "2", **options)


def test_where_what_is_held_out_stays_the_training_task_gives_way(tmp_path: Path) -> None:
    families = {"train": [twin("a", range(2, 7))], "validation": [twin("b", range(2, 5))]}
    options = {"families": families, "counts": {"train": 2, "validation": 3}, "mix": {1: 1.0}, "stays": ["validation"]}
    made = make(tmp_path / "1", **options)
    numbers = {split: {task.payload["name"][-1] for task in tasks} for split, tasks in made.tasks.items()}
    assert numbers == {"train": {"5", "6"}, "validation": {"2", "3", "4"}}
    assert made.tasks == make(tmp_path / "2", **options).tasks


def test_a_name_is_not_on_both_sides_where_another_agent_uses_it(tmp_path: Path) -> None:
    def named(numbers: range, body: str) -> list[Family]:
        one = twin("a", numbers).tools[0]
        tool = ToolTemplate(level=1, make=lambda rng: replace(one.make(rng), body=body))
        return [Family(name="a", subject="saying it again", tools=(tool,))]

    # Training has both of its functions in a sequence, and one of them alone.
    families = {"train": named(range(2, 4), "return a + '!'"), "validation": named(range(2, 5), "return '?' + a")}
    rejected = []
    for seed in range(4):
        counts = {"train": 2, "validation": 1}
        made = make(tmp_path / str(seed), families=families, counts=counts, mix={1: 1.0, 3: 1.0}, seed=seed)
        assert [task.payload["name"] for task in made.tasks["validation"]] == ["a_of_4"]
        rejected += [item.reason for item in made.rejected]
    assert any("is nearly the same as nat_agent/train/" in reason for reason in rejected)


def constant(rng: random.Random) -> ToolVariant:
    del rng
    return ToolVariant(
        name="constant", args={"text": "str"}, returns="str", does=("a.", "b.", "c."), body="return 'x' + text[:0]",
        draw={"text": TEXT},
    )  # fmt: skip


def raising(rng: random.Random) -> ToolVariant:
    del rng
    return ToolVariant(
        name="raising", args={"text": "str"}, returns="str", does=("a.", "b.", "c."),
        body="return text[len(text) // 2 - 1 + ord(text[0]) % 2 :] + str(int(text[0], 36))", draw={"text": TEXT},
    )  # fmt: skip


@pytest.mark.parametrize(("make_tool", "reason"), [(constant, "different answers"), (raising, "must raise ValueError")])
def test_tool_that_pays_a_constant_or_raises_without_a_word_is_refused(make_tool: Any, reason: str) -> None:
    families = [Family(name="f", subject="a bad tool", tools=(ToolTemplate(level=1, make=make_tool),))]
    recipe = draw_recipe(families, 1, "seed")
    assert recipe is not None
    with pytest.raises(DataError, match=reason):
        complete(recipe, open_oracle())


@pytest.mark.parametrize("difficulty", range(1, 6))
def test_recipes_of_every_difficulty_become_sources_with_enough_inputs(difficulty: int) -> None:
    kinds: set[str] = set()
    for seed in range(30):
        recipe = draw_recipe(FAMILIES["train"], difficulty, f"{seed}")
        if recipe is None:
            continue
        assert recipe == draw_recipe(FAMILIES["train"], difficulty, f"{seed}")
        assert (recipe.num_tests > 0) == (difficulty >= 4)
        kinds.add(recipe.workflow_type or ("custom" if recipe.workflow else "single"))
        source = complete(recipe, open_oracle())
        for tool in [*source["tools"], *([source["workflow"]] if "workflow" in source else [])]:
            assert len(tool["inputs"]) == NUM_INPUTS
            assert len(tool["examples"]) == NUM_EXAMPLES
            assert not [value for value in tool["examples"] if value in tool["inputs"]]
    expected = {
        1: {"single"},
        2: {"single"},
        3: {"single", "custom", "sequential_executor"},
        4: {"react_agent", "tool_calling_agent", "sequential_executor"},
        5: {"router_agent", "custom"},
    }
    assert kinds == expected[difficulty]
    assert kinds - {"single"} <= {kind.value for kind in WorkflowType}


def test_store_keeps_what_was_rejected_and_why(tmp_path: Path) -> None:
    store = MadeStore(tmp_path / "made.jsonl")
    store.add(Made(key="a", reason="no"))
    assert MadeStore(tmp_path / "made.jsonl").get("a") == Made(key="a", reason="no")
    assert json.loads((tmp_path / "made.jsonl").read_text())["task"] is None


def test_sandbox_of_the_oracle_is_asked_few_times_per_task() -> None:
    """Every job costs some twenty milliseconds: a thousand tasks must not ask one input at a time."""
    recipe = draw_recipe(FAMILIES["train"], 1, "seed")
    assert recipe is not None
    sandbox = OracleSandbox()
    from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle

    complete(recipe, ReferenceOracle(sandbox))
    assert len(sandbox.jobs) <= 3

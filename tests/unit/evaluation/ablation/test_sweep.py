"""What is varied, and what is refused before anything is trained."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyrl_nat.config.load import load_config
from skyrl_nat.errors import ConfigError
from skyrl_nat.evaluation.ablation.sweep import check_configs, make_sweep, read_variants, varied

WORDS = ["algorithm=grpo,dapo", "optimizer.lr=1e-5,3e-5,1e-4"]


def test_keys_make_all_combinations_the_first_values_first():
    assert list(varied(WORDS, is_one_at_a_time=False)) == [
        "algorithm=grpo, optimizer.lr=1e-05",
        "algorithm=grpo, optimizer.lr=3e-05",
        "algorithm=grpo, optimizer.lr=0.0001",
        "algorithm=dapo, optimizer.lr=1e-05",
        "algorithm=dapo, optimizer.lr=3e-05",
        "algorithm=dapo, optimizer.lr=0.0001",
    ]


def test_one_at_a_time_differs_from_the_first_in_one_key():
    assert list(varied(WORDS, is_one_at_a_time=True).values()) == [
        ["algorithm=grpo", "optimizer.lr=1e-05"],
        ["algorithm=dapo", "optimizer.lr=1e-05"],
        ["algorithm=grpo", "optimizer.lr=3e-05"],
        ["algorithm=grpo", "optimizer.lr=0.0001"],
    ]


def test_every_run_is_an_ordinary_training(tmp_path: Path):
    root = tmp_path / "a folder, é"
    sweep = make_sweep(varied(WORDS[:1], is_one_at_a_time=False), [0, 3], ["trainer.steps=2"])
    runs = sweep.runs(root)
    assert [run.name for run in runs] == [
        f"algorithm-{name}-seed{seed}" for name in ("grpo", "dapo") for seed in (0, 3)
    ]
    config = load_config(runs[3].overrides)
    assert (config.seed, config.resume, config.trainer.steps) == (3, "latest", 2)
    assert config.run_dir == (root / "algorithm-dapo-seed3").resolve()


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=2, max_size=6, unique=True))
def test_names_of_any_letters_make_safe_folders_and_no_two_are_one(names: list[str]):
    sweep = make_sweep(dict.fromkeys(names, ()), [0], [])
    folders = [run.name for run in sweep.runs(Path("/runs"))]
    assert len({folder.casefold() for folder in folders}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", folder) for folder in folders)


def test_names_that_look_alike_get_numbers():
    names = ["a=1,2", "A=1/2", "a=1-2-2", "基线", "../..", "x" * 300, "x" * 301]
    folders = [variant.folder for variant in make_sweep(dict.fromkeys(names, ()), [0], []).variants]
    assert folders == ["a-1-2", "A-1-2-2", "a-1-2-2-2", "variant", "variant-2", "x" * 80, "x" * 80 + "-2"]


def test_named_variants_come_from_a_file(tmp_path: Path):
    file = tmp_path / "variants.yaml"
    file.write_text("plain: []\nwith files: [environment.reward_weights.shaping_files=0.05]\nonly tests:\n- a=1\n")
    assert read_variants(file) == {
        "plain": [],
        "with files": ["environment.reward_weights.shaping_files=0.05"],
        "only tests": ["a=1"],
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [x=1]\na: [x=2]\n", "got a name twice"),
        ("- a\n", "got something else"),
        ("", "got something else"),
        ("a: x=1\n", "got 'a': 'x=1'"),
        ("a: [1]\n", "got 'a': [1]"),
        ("1: [x=1]\n", "got 1: ['x=1']"),
        ("a: [", "but: while parsing"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, sentence: str):
    file = tmp_path / "variants.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        read_variants(file)
    with pytest.raises(ConfigError, match="No such file"):
        read_variants(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("variants", "seeds", "overrides", "sentence"),
    [
        ({"a": ["x=1"]}, [0], [], "must have two variants or more, got 1"),
        ({"a": ["x=1"], "b": []}, [], [], "--seeds must be different numbers >= 0, got []"),
        ({"a": ["x=1"], "b": []}, [1, 1], [], "--seeds must be different"),
        ({"a": ["x=1"], "b": []}, [-1], [], "--seeds must be different"),
        ({"a": ["x=1"], "b": []}, [0], ["x=2"], "x must be set in one place, got it in variant 'a'"),
        ({"a": ["x=1", "x=2"], "b": []}, [0], [], "x must be set in one place, got it in variant 'a', and it is twice"),
        ({"a": ["seed=1"], "b": []}, [0], [], "seed must be set in one place"),
        ({"a": ["x=1"], "b": []}, [0], ["name=mine"], "name must be set in one place, got it in the overrides of all"),
        ({"a": ["x=1,2"], "b": []}, [0], [], "an override must be one value"),
    ],
)
def test_what_makes_no_ablation_is_refused(variants: dict, seeds: list, overrides: list, sentence: str):
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        make_sweep(variants, seeds, overrides)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["algorithm=grpo,none"], "Variant 'algorithm=none': algorithm must be one of"),
        (["optimizer.lr=1e-5,-1"], "Variant 'optimizer.lr=-1': optimizer.lr must"),
        (["trainer.stebs=1,2"], "Variant 'trainer.stebs=1': trainer.stebs must be a declared key"),
        (
            ["environment.max_difficulty=5,2"],
            "has another environment.max_difficulty than 'environment.max_difficulty=5'",
        ),
        (["evaluation.before_and_after=true,false"], "must be evaluated before and after training, it is not"),
        (["environment.slow_checks=evaluation,never"], "has another environment.slow_checks"),
    ],
)
def test_a_config_that_does_not_hold_is_named_before_anything_is_trained(tmp_path: Path, words: list, sentence: str):
    sweep = make_sweep(varied(words, is_one_at_a_time=False), [0], ["trainer.steps=1"])
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        check_configs(sweep, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_judges_differently_is_named(tmp_path: Path):
    weights = make_sweep(varied(["environment.reward_weights.shaping_files=0,0.05"], is_one_at_a_time=False), [0], [])
    assert check_configs(weights, tmp_path) == ["environment.reward_weights"]
    screen = make_sweep(varied(["environment.screen=log,drop"], is_one_at_a_time=False), [0], [])
    assert check_configs(screen, tmp_path) == ["environment.screen"]
    plain = make_sweep(varied(["algorithm=grpo,dapo"], is_one_at_a_time=False), [0], [])
    assert check_configs(plain, tmp_path) == []

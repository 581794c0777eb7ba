"""Words of the command line: one value each, letter by letter where it is quoted, and no second run by accident."""

import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyrl_nat.config.load import config_from_file, load_config, save_config
from skyrl_nat.config.overrides import _quoted, parse_overrides, parse_sweep
from skyrl_nat.errors import ConfigError


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("name=a#b", "'name=\"a#b\"'"),
        ("name=a=b", "'name=\"a=b\"'"),
        ("name=a(b", "'name=\"a(b\"'"),
        ("name=a,b", "'name=\"a,b\"'"),
        ("name=résumé", "'name=\"résumé\"'"),
        ("name=a{b", "'name=\"a{b\"'"),
        ("name=a;b", "'name=\"a;b\"'"),
        ("name='half", "'name=\"'\"'\"'half\"'"),
        ("name=1e3", "name must be text as it is written, got 1e3, which is read as '1000.0'. Write 'name=\"1e3\"'"),
        ("trainer", "an override must be KEY=VALUE, got 'trainer'. Put the value after an equals sign"),
    ],
)
def test_a_word_that_does_not_say_what_it_seems_to_is_refused_with_the_quoted_form(word: str, quoted: str):
    """CF-01."""
    with pytest.raises(ConfigError) as caught:
        load_config([word])
    assert word.partition("=")[2] in str(caught.value)
    assert quoted in str(caught.value)
    _, is_shown, form = str(caught.value).partition("Write ")
    if is_shown:
        assert load_config(shlex.split(form)[:1]).name == word.partition("=")[2]


@pytest.mark.parametrize(
    "word", ["name=a%b", "name=a@b", "name=a\\b", "name=a b", "name=a:b", "name=123", "name=007", "name=a.b-c_d"]
)
def test_other_signs_pass_as_they_are(word: str):
    """CF-01."""
    assert load_config([word]).name == word.partition("=")[2]


@pytest.mark.parametrize("word", ["trainer.steps=1,2", "algorithm=grpo,dapo", "seed=range(1,3)", "seed=choice(1,2)"])
def test_several_values_never_start_several_runs(tmp_path: Path, word: str):
    """CF-01: neither in a new run's config nor on top of a saved one."""
    message = f"an override must be one value, got '{re.escape(word)}', which names several"
    with pytest.raises(ConfigError, match=message):
        load_config([word])
    save_config(load_config([]), tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match=message):
        config_from_file(tmp_path / "config.yaml", [word])


@given(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1).filter(lambda text: "${" not in text))
def test_a_quoted_value_is_taken_letter_by_letter(text: str):
    """CF-01: `${` alone keeps its meaning."""
    from skyrl_nat.config.overrides import parse_overrides

    [word] = shlex.split(_quoted("name", text))
    assert parse_overrides([word])[0].value() == text


@pytest.mark.parametrize(
    ("word", "overrides"),
    [
        ("algorithm=grpo,dapo", ["algorithm=grpo", "algorithm=dapo"]),
        ("optimizer.lr=1e-5,3e-5", ["optimizer.lr=1e-05", "optimizer.lr=3e-05"]),
        ("seed=range(1,4)", ["seed=1", "seed=2", "seed=3"]),
        ("a=choice(x,y)", ["a=x", "a=y"]),
        ("a=[1,2],[3]", ["a=[1,2]", "a=[3]"]),
        ("a='x,y',z", ["a='x,y'", "a=z"]),
        ('+a="q,é",null', ['+a="q,é"', "+a=null"]),
    ],
)
def test_a_sweep_is_read_as_hydra_reads_it(word: str, overrides: list[str]):
    assert parse_sweep(word) == overrides
    assert [override.key_or_group for override in parse_overrides(overrides)] == [
        word.partition("=")[0].lstrip("+")
    ] * (len(overrides))


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("a=1", "must be KEY=A,B with two values or more, got 'a=1'"),
        ("a=[1,2]", "must be KEY=A,B with two values or more"),
        ("a=interval(0,1)", "must be KEY=A,B with two values or more"),
        ("a=glob(*)", "must be KEY=A,B with two values or more"),
        ("~a", "must be KEY=A,B with two values or more"),
        ("a=choice(1)", "must name two values or more, each once"),
        ("a=1,2,1", "must name two values or more, each once"),
        ("a=shuffle(1,2)", "must have a fixed order"),
        ("a", "an override must be KEY=VALUE, got 'a'"),
        ("a=é,b", "has signs that mean something else"),
    ],
)
def test_what_is_no_sweep_is_refused(word: str, sentence: str):
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        parse_sweep(word)

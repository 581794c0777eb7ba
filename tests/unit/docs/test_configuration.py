"""Every key of the config is described, with its limits and presets, and the page says what the code says."""

from enum import StrEnum

import pytest
from loaded_script import load
from omegaconf import OmegaConf

from skyrl_nat.config.load import FREE_SECTIONS, _known_keys
from skyrl_nat.config.run import RunConfig

reference = load("build_config_reference")
KEYS = {key.path: key for section in reference.sections() for key in section.keys}


def test_page_is_up_to_date():
    assert reference.main(["--check"]) == 0


def test_page_that_is_out_of_date_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    monkeypatch.setattr(reference, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(reference, "page", lambda: "new")
    (tmp_path / "page.md").write_text("old")
    assert reference.main(["--check"]) == 1
    assert "page.md is out of date" in capsys.readouterr().err
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0


def test_every_key_that_a_run_takes_is_on_the_page():
    known = set(_known_keys(OmegaConf.to_container(OmegaConf.structured(RunConfig)), ""))
    assert known | {section.rstrip(".") for section in FREE_SECTIONS} == set(KEYS)


@pytest.mark.parametrize("path", KEYS)
def test_every_key_has_a_sentence(path):
    text = KEYS[path].text
    assert text.endswith("."), f"{path} needs a docstring below it in skyrl_nat/config/ that ends with a full stop"
    assert len(text.split()) >= 3


def test_every_choice_has_a_sentence():
    kinds = {key.type for key in KEYS.values() if isinstance(key.type, type) and issubclass(key.type, StrEnum)}
    assert len(kinds) > 15
    for kind in kinds:
        assert set(reference.attribute_texts(kind)) == {member.name for member in kind}, kind


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("trainer.tasks_per_step", "be > 0"),
        ("trainer.tasks_per_step", "be a multiple of trainer.updates_per_batch"),
        ("optimizer.beta2", "be in [0, 1)"),
        ("algorithm.clip_high", "be >= algorithm.clip_low"),
        ("model.lora.rank", "be <= 512 with engine.adapters=separate"),
        ("engine.fp32_head", "equal model.fp32_head"),
        ("root_dir", "not be empty"),
        ("model.sequence_parallel_size", "divide the query heads of model.path"),
    ],
)
def test_limits_are_those_of_the_checks(path, limit):
    assert limit in reference.limits()[path]


def test_presets_that_change_a_key_are_named():
    text = reference.paragraph_of(KEYS["trainer.steps"])
    assert "`experiment=smoke_cpu` → `3`" in text
    assert "`algorithm=dapo`" in reference.paragraph_of(KEYS["algorithm.clip_high"])
    assert "`environment=jira`" in reference.paragraph_of(KEYS["environment.family"])


def test_no_limit_shows_a_hole_where_a_value_of_one_run_was():
    assert not [limit for path in KEYS for limit in reference.limits().get(path, []) if "{" in limit]

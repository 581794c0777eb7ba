"""docs/algorithms.md has a section for every preset, with the keys that make it and papers that the code names."""

import re
from pathlib import Path

import pytest
import yaml

from skyrl_nat.algorithms.kl import KL_ESTIMATORS
from skyrl_nat.algorithms.losses import POLICY_LOSSES
from skyrl_nat.algorithms.off_policy import CORRECTIONS
from skyrl_nat.algorithms.reduction import REDUCTIONS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
PRESETS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "conf" / "algorithm").glob("*.yaml")}
PAPER = re.compile(r"arXiv:(\d{4}\.\d{5})")


def sections(page: str) -> dict[str, str]:
    """Return the text under each second-level heading."""
    return dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))


def missing_keys(preset: str, section: str) -> list[str]:
    """Return the lines of a preset that its section does not name as `key=value`."""
    data = yaml.safe_load(preset)
    flat = {**data.get("algorithm", {}), **data.get("alarms", {})} if "algorithm" in data else data
    words = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in flat.items()}
    return [f"{key}={text}" for key, text in words.items() if key != "name" and f"`{key}={text}`" not in section]


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_each_preset_has_a_section_with_its_keys_its_formula_and_its_paper(name):
    section = sections(PAGE)[name]
    assert missing_keys(PRESETS[name], section) == []
    assert "$$" in section
    for paper in PAPER.findall(PRESETS[name]):
        assert paper in section


def test_a_key_that_a_section_leaves_out_is_noticed():
    assert missing_keys(PRESETS["grpo"], "Keys: `advantage=grpo` `clip_low=0.2`") == [
        "policy_loss=ppo_clip",
        "reduction=token_mean",
        "clip_high=0.2",
    ]


def test_every_paper_of_the_page_is_named_by_the_code():
    code = [path.read_text(encoding="utf-8") for path in (ROOT / "skyrl_nat" / "algorithms").glob("*.py")]
    known = set(PAPER.findall("".join([*code, *PRESETS.values()])))
    assert set(PAPER.findall(PAGE)) <= known


def test_every_function_that_a_config_may_name_is_on_the_page():
    for name in (*REDUCTIONS, *KL_ESTIMATORS, *CORRECTIONS, *POLICY_LOSSES):
        assert f"`{name}`" in PAGE or f"policy_loss={name}`" in PAGE, name

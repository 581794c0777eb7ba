"""The reference says what the code says, and leaves out none of what it promises."""

import ast
import re

import pytest
from loaded_script import load

from skyrl_nat.algorithms.advantages import ADVANTAGES
from skyrl_nat.algorithms.losses import POLICY_LOSSES

reference = load("build_api_reference")
TEXT = reference.PAGE.read_text(encoding="utf-8")
NAMES = [name for names in reference.MODULES.values() for name in names]


def test_page_is_up_to_date():
    assert reference.main(["--check"]) == 0


def test_page_that_is_out_of_date_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    monkeypatch.setattr(reference, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(reference, "page", lambda: "new")
    assert reference.main(["--check"]) == 1
    assert "page.md is out of date" in capsys.readouterr().err
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_a_sentence(name):
    path = reference.ROOT / "skyrl_nat" / f"{name.replace('.', '/')}.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if reference.is_public(node):
            assert reference.first_sentence(reference.docstring(node)), node.name
            assert re.search(rf"`(async )?{node.name}\b", TEXT), node.name


def test_every_objective_is_on_the_page():
    for function in (*ADVANTAGES.values(), *POLICY_LOSSES.values()):
        assert f"* `{function.__name__}(" in TEXT


def test_every_command_is_on_the_page_with_a_sentence():
    for name, _, text in reference.commands():
        assert f"### `{name}`" in TEXT
        assert len(text.split()) > 2, name


def test_every_call_of_the_services_has_a_sentence():
    rows = [line for line in TEXT.splitlines() if line.startswith(("| `GET", "| `POST", "| `DELETE", "| `PUT"))]
    assert len(rows) > 25
    assert not [row for row in rows if len(row.split("|")[2].split()) < 3]


def test_signatures_and_errors_are_those_of_the_source():
    text = "Raises:\n        DataError: It is bad,\n            or worse.\n        ConfigError: No.\n    "
    source = f'async def play(self, x: int = 1, *, y) -> str:\n    """Play `x`. More.\n\n    {text}"""'
    (node,) = ast.parse(source).body
    assert reference.function_line(node) == (
        "* `async play(x: int=1, *, y) -> str`: Play `x`. Raises `DataError`: It is bad, or worse; `ConfigError`: No."
    )

"""Faults are put in where they belong, and what cannot be judged is refused."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("mutation_check", ROOT / "scripts/mutation_check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        spec.loader.exec_module(module)
        yield module
    del sys.modules[spec.name]


def test_every_fault_has_a_name_of_its_own_and_one_place(script: ModuleType) -> None:
    """Whoever rewrites a line that a fault replaces must rewrite the fault too."""
    names = [fault.name for fault in script.FAULTS]
    assert len(set(names)) == len(names) >= 40
    counts = {f.name: (ROOT / "skyrl_nat" / f.path).read_text(encoding="utf-8").count(f.old) for f in script.FAULTS}
    assert {name: count for name, count in counts.items() if count != 1} == {}
    assert all((ROOT / "tests/unit" / test).is_file() for fault in script.FAULTS for test in fault.tests)


@pytest.mark.parametrize("text", ["x = 1\n", "a = 2\nb = 2\n"])
def test_a_fault_whose_string_does_not_occur_once_is_refused(script: ModuleType, tmp_path: Path, text: str) -> None:
    (tmp_path / "skyrl_nat").mkdir()
    (tmp_path / "skyrl_nat/m.py").write_text(text)
    with pytest.raises(script.CheckError, match=r"must occur once in m\.py"):
        script.apply(script.Fault("m.py", (), "n", "= 2", "= 3"), tmp_path)


def test_only_wrong_results_count_as_caught(script: ModuleType) -> None:
    assert script.judge("n", 1, "FAILED tests/x.py::t - assert 1 == 2")
    assert not script.judge("n", 0, "1 passed")
    for code, output in ((2, "ERROR"), (4, ""), (97, ""), (-9, ""), (1, "FAILED tests/x.py::t - NameError: name 'x'")):
        with pytest.raises(script.CheckError, match=r"^n\b"):
            script.judge("n", code, output)

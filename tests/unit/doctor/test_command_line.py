"""`skyrl-nat doctor`: what it imports, what it says and how it ends."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from letter_family import write_letter_tasks

from skyrl_nat import cli
from skyrl_nat.doctor import sections
from skyrl_nat.doctor.check import none_of

MODULES = """
import sys
from skyrl_nat.cli import main
code = main(["doctor", "experiment=smoke_cpu", "--only", {only!r}])
print("code", code, *(name for name in ("torch", "transformers", "ray", "vllm") if name in sys.modules))
"""


def imported(only: str) -> str:
    program = [sys.executable, "-c", MODULES.format(only=only)]
    ran = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)
    return ran.stdout.splitlines()[-1] if ran.stdout else ran.stderr


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_environment_and_cluster_need_neither_torch_nor_ray() -> None:
    before = children_cpu_s()
    assert imported("environment") == "code 0"
    assert children_cpu_s() - before < 3.0, "seconds of a CPU: on a busy machine the wall clock says nothing"
    assert imported("environment,cluster") == "code 0"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--only", "environment,weather"], "--only must name some of environment, cluster,"),
        (["--only", "environment", "--json", "no/such/folder/x.json"], "--json must be a file in a folder that exists"),
        (["--only", "environment", "trainer.stepz=3"], "stepz"),
    ],
)
def test_bad_input_is_a_sentence_and_code_2(capsys, arguments: list[str], text: str) -> None:
    assert cli.main(["doctor", "experiment=smoke_cpu", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_a_wrong_row_is_code_3_named_in_the_last_line_and_in_json(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(sections.Sections, "_environment", lambda self: [none_of("", "conflicts", ["a needs b"])])
    file = tmp_path / "table.json"
    code = cli.main(["doctor", "experiment=smoke_cpu", "--only", "environment", "--json", str(file)])
    printed = capsys.readouterr()
    assert code == 3
    assert printed.err.splitlines()[-1] == "skyrl-nat: All 1 checks must hold, 1 failed: conflicts. See the table"
    assert printed.out.splitlines()[-1] == "1 checks in 0 s: 0 ok, 1 WRONG, 0 skipped"
    assert json.loads(file.read_text())["counts"]["WRONG"] == 1


def test_data_that_cannot_be_opened_leaves_the_engine_alone(capsys, tmp_path: Path) -> None:
    """The whole table is there, with a reason for what was not tried."""
    overrides = write_letter_tasks(tmp_path)
    missing = f"environment.train_files=[{tmp_path}/missing.parquet]"
    model = "model.path=/no/such/model"
    code = cli.main(["doctor", *overrides, missing, model, "--only", "data,template,rewards,engine"])
    printed = capsys.readouterr().out
    assert code == 3
    assert "missing.parquet" in printed
    assert "it needs what is wrong above" in printed
    assert printed.splitlines()[-1].endswith("skipped")

"""The shipped files of task_dag are what the script makes, byte for byte."""

import json
from pathlib import Path

import pytest

from skyrl_nat.data.specs import load_tasks


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "scripts"))
    import build_task_dag

    return build_task_dag


def test_the_script_makes_the_shipped_bytes_again_and_reference_dialogues(script, tmp_path: Path) -> None:
    assert script.main(["--check", "--episodes", str(tmp_path)]) == 0
    for split in ("train", "validation"):
        lines = (tmp_path / f"{split}_episodes.jsonl").read_text(encoding="utf-8").splitlines()
        episodes = [json.loads(line) for line in lines]
        assert [item["task_id"] for item in episodes] == [
            task.task_id for task in load_tasks([f"builtin:task_dag/{split}"])
        ]
        assert {item["reward"] for item in episodes} == {1.0}


def test_a_file_that_differs_is_told(
    script, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "generate", lambda seed: {"train": load_tasks(["builtin:task_dag/train"])[:3]})
    assert script.main(["--check"]) == 1
    assert "must be what the generator makes" in capsys.readouterr().out
